"""Which engines a node says it has: what agent.yaml names, what was installed, the wheel; and what it is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from agent.core import options
from agent.node import installed
from agent.node.home import open_home
from agent.node.install import in_use
from agent.node.settings import Installs, Settings, read
from agent.node.this_machine import EnginesHere, have, ways
from agent.wire.facts import EngineFacts, GpuFacts, NodeFacts

PAPERS = {"node_id": "n1", "server": "wss://h:7443/agent/link", "tls": {"ca": "a", "cert": "b", "key": "c"}}
WHEEL = EngineFacts("llamacpp", "2026.10", "xllamacpp", "/python")
OURS = EngineFacts("llamacpp", "b10991", "cpu", "/e/llama-server")
BEGUN = EngineFacts("llamacpp", "b10991", "cpu", problem="installing: x", installing="x")
NAMED = EngineFacts("llamacpp", "1", "llama-server", "/opt/llama-server", problem="it is broken")
VLLM = EngineFacts("vllm", "0.30.0", "cu13", "/e/vllm")


def settings(folder: Path, **engines: object) -> Settings | list[str]:
    (folder / "agent.yaml").write_text(yaml.safe_dump({**PAPERS, "engines": engines}))
    found = read(folder / "agent.yaml", {})
    return found if isinstance(found, Settings) else [p.sentence for p in found]


def test_engines_are_named_in_the_old_form_and_the_new(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        llamacpp="/x/llama-server",
        vllm={"bin": "/v/bin/vllm"},
        trtllm={"python": "/t/python"},
        disabled=["sglang"],
        install=False,
        packages=False,
        uv="/u/uv",
    )
    assert isinstance(found, Settings)
    assert found.engines == {"llamacpp": "/x/llama-server", "vllm": "/v/bin/vllm", "trtllm": "/t/python"}
    assert found.installs == Installs(False, ("sglang",), False, "", "/u/uv")
    assert found.unknown == ()
    way = ways(open_home(tmp_path / "home"), found)
    assert way.left_out == {"llamacpp", "vllm", "trtllm", "sglang"}
    nothing = settings(tmp_path)
    assert isinstance(nothing, Settings)
    assert nothing.installs == Installs(on=True, packages=True)


@pytest.mark.parametrize(
    ("engines", "says"),
    [
        ({"vllm": {"path": "/x"}}, "engines in agent.yaml names vllm by its bin or its python, and has path"),
        ({"vllm": {"bin": "/x", "python": "/y"}}, "has bin, python"),
        ({"vllm": {}}, "has neither"),
        ({"vllm": ["/x"]}, "must be a text"),
        ({"install": "yes"}, "needs true or false for install, and has 'yes'"),
        ({"disabled": "vllm"}, "needs a list of engines for disabled, and has 'vllm'"),
    ],
)
def test_what_cannot_be_meant_is_said(tmp_path: Path, engines: dict[str, object], says: str) -> None:
    found = settings(tmp_path, **engines)
    assert isinstance(found, list)
    assert any(says in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("named", "wheel", "kept", "disabled", "expected"),
    [
        ((), None, (), (), ()),
        ((), WHEEL, (), (), (WHEEL,)),
        ((), WHEEL, (OURS,), (), (OURS,)),
        ((), None, (BEGUN,), (), (BEGUN,)),
        ((), WHEEL, (BEGUN,), (), (EngineFacts("llamacpp", "2026.10", "xllamacpp", "/python", None, "x"),)),
        ((NAMED,), WHEEL, (OURS,), (), (NAMED,)),  # the operator's word, even where it is broken
        ((), WHEEL, (VLLM,), (), (WHEEL, VLLM)),
        ((), WHEEL, (VLLM,), ("vllm",), (WHEEL,)),
        ((NAMED,), None, (), ("llamacpp",), ()),
    ],
)
def test_one_entry_an_engine(
    named: tuple[EngineFacts, ...],
    wheel: EngineFacts | None,
    kept: tuple[EngineFacts, ...],
    disabled: tuple[str, ...],
    expected: tuple[EngineFacts, ...],
) -> None:
    assert installed.laid(named, wheel, kept=kept, disabled=disabled) == expected


@pytest.mark.parametrize(
    ("name", "file", "script", "version", "problem"),
    [
        ("trtllm", "python", "echo version: 1.3.0rc13", "1.3.0rc13", None),
        ("trtllm", "python", "echo version: 1.2.0", "1.2.0", "TensorRT-LLM 1.3 or newer is needed"),
        ("trtllm", "python", "echo PackageNotFoundError >&2; exit 1", None, "has no package tensorrt_llm"),
        ("sglang", "python3", "echo version: 0.5.20", "0.5.20", None),
        ("vllm", "vllm", "echo 0.30.0", "0.30.0", None),  # without a python beside it, it is asked itself
        ("vllm", "vllm", "exit 4", None, "ends with status 4"),
    ],
)
def test_what_is_named_is_asked(
    tmp_path: Path, name: str, file: str, script: str, version: str | None, problem: str | None
) -> None:
    path = tmp_path / file
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    (found,) = installed.named({name: str(path)})
    assert (found.version, found.path) == (version, str(path))
    assert found.problem is None if problem is None else problem in str(found.problem)
    gone = installed.named({name: str(tmp_path / "gone" / file)})[0]
    assert "cannot be run" in str(gone.problem)


def test_nothing_is_used_because_it_is_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama-server").write_text("#!/bin/sh\necho version: 1\n")
    (tmp_path / "llama-server").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(installed, "wheel", lambda vectors, arch: None)
    assert EnginesHere(open_home(tmp_path / "home"), None).facts() == ()


def test_the_wheel_is_enough_where_there_is_no_card() -> None:
    assert have(NodeFacts(arch="x86_64", vector_extensions=("avx2",), gpus=())) == {"llamacpp"}
    assert have(NodeFacts(arch="x86_64", vector_extensions=("avx2",), gpus=(GpuFacts(0),))) == frozenset()
    assert have(NodeFacts(arch="x86_64", vector_extensions=(), gpus=())) == frozenset()


def test_what_it_is_told_is_read_and_bad_ones_are_kept_out_with_a_sentence() -> None:
    told = {
        "engines": {"llamacpp": "b10991", "vllm": "newest", "sglang": "", "of_the_future": "1"},
        "engine_builds": {"vllm": "cu129", "llamacpp": "rocm", "of_the_future": "x"},
        "offline": {"mirror": "http://10.0.0.5:8081", "index": 7, "sha256": {"x": "0" * 64, "y": "abc"}},
    }
    found, problems = options.read(2.0, told)
    assert found.engines == {"llamacpp": "b10991", "sglang": ""}
    assert found.builds == {"vllm": "cu129"}
    assert (found.mirror, found.index, found.sha256) == ("http://10.0.0.5:8081", "", {"x": "0" * 64})
    assert [p.split(",")[0] for p in problems] == [
        "vllm is installed as a version of vLLM",
        "llamacpp has the builds auto",
        "offline.index must be an address like http://10.0.0.5:8081",
        "the digest of 'y' must be 64 hexadecimal digits",
    ]
    assert options.read(2.0, {})[0].engines is None
    assert options.read(2.0, {"engines": 7, "offline": []})[1]


def test_what_runs_from_a_folder_is_found(tmp_path: Path) -> None:
    import subprocess

    assert in_use.by(tmp_path) is None
    folder = tmp_path / "engine"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, "-c", "input()", f"{folder}/bin/vllm"], stdin=subprocess.PIPE)
    try:
        assert in_use.by(folder) == process.pid
        assert in_use.by(tmp_path / "eng") is None
    finally:
        process.communicate()
