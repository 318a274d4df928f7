"""Environments by a real uv, from a stand-in of a package index: as it stood at a moment, by digests, and movable."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.node.install.fetching import Sources
from agent.node.install.worker import INSTALL, LOOK, Job, carry_out
from agent.plans.python import there
from agent.plans.steps import Check, Environment, Plan, ReleaseFile
from tests.agent.releases import Releases, serving, wheel

UV = os.environ.get("LLMGW_TEST_UV") or shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(UV is None, reason="no uv: pip install -r requirements/test.txt")]

REPOSITORY = "vllm-project/vllm"
SAYS = Check(("vllm", "--version"), r"^vllm says 0\.30\.0 with torch 2\.13\.0\b", "it is not vLLM 0.30.0", 20.0)
CODE = "import torch\ndef main():\n    print('vllm says 0.30.0 with torch', torch.__version__)\n"


@pytest.fixture
def index() -> Iterator[Releases]:
    """torch 2.14.0 came two days after vLLM did."""
    with serving() as releases:
        releases.add(REPOSITORY, "v0.30.0", "notes.txt", b"")
        for version, when in (("2.13.0", "2026-09-01T18:00:00Z"), ("2.14.0", "2026-09-03T12:00:00Z")):
            name, data = wheel("torch", version, {"torch/__init__.py": f"__version__ = {version!r}\n"})
            releases.packages[name] = (data, when)
        name, data = vllm("0.30.0")
        releases.packages[name] = (data, "2026-09-01T12:00:00Z")
        yield releases


def vllm(version: str) -> tuple[str, bytes]:
    return wheel("vllm", version, {"vllm/__init__.py": CODE}, requires=("torch>=2",), scripts="vllm = vllm:main")


def plan(*wheels: ReleaseFile) -> Plan:
    requirements = () if wheels else ("vllm==0.30.0",)
    environment = Environment("3.12", requirements, REPOSITORY, "v0.30.0", wheels=wheels)
    look = there("vllm", "0.30.0")
    return Plan("vllm", "0.30.0", "cu13", "vllm", (environment, look, SAYS), (look, SAYS), 0)


def work(root: Path, of: Plan, sources: Sources, do: str = INSTALL) -> dict[str, Any]:
    words: list[str] = []
    job = Job(do, str(root), of, sources, uv=str(UV), retry_s=0.01)
    return {**msgspec.to_builtins(carry_out(job, words.append)), "words": words}


def sources(index: Releases, **more: Any) -> Sources:
    values: dict[str, Any] = {"github": index.api, "index": index.index, "python": sys.executable, **more}
    return Sources(**values)


def test_an_environment_is_resolved_at_its_day_and_installed_by_digest(tmp_path: Path, index: Releases) -> None:
    found = work(tmp_path, plan(), sources(index))
    assert found["type"] == "done", found
    folder = tmp_path / "vllm" / "0.30.0-cu13"
    assert found["path"] == str(folder / "bin" / "vllm")
    listed = (folder / "llmgw-requirements.txt").read_text()
    assert "torch==2.13.0" in listed  # and not what came later
    assert listed.count("--hash=sha256:") == 2
    assert "installing 2 packages" in found["words"]
    said = subprocess.run([found["path"]], capture_output=True, text=True, check=True).stdout
    assert said == "vllm says 0.30.0 with torch 2.13.0\n"  # it was made under another name
    assert work(tmp_path, plan(), sources(index), LOOK)["type"] == "done"
    assert not (tmp_path / ".cache").exists()
    shutil.rmtree(next(folder.glob("lib/python3*/site-packages/torch")))
    assert work(tmp_path, plan(), sources(index), LOOK)["reason"]["code"] == "check_failed"


def test_a_wheel_of_a_release_is_held_to_its_digest_too(tmp_path: Path, index: Releases) -> None:
    name, data = vllm("0.30.0+cu129")
    index.add(REPOSITORY, "v0.30.0", name, data)
    found = work(tmp_path, plan(ReleaseFile(REPOSITORY, "v0.30.0", r"vllm-0\.30\.0\+cu129-.*\.whl")), sources(index))
    assert found["type"] == "done", found
    listed = (tmp_path / "vllm" / "0.30.0-cu13" / "llmgw-requirements.txt").read_text()
    assert hashlib.sha256(data).hexdigest() in listed


def test_a_file_that_is_not_what_the_list_says_is_not_installed(tmp_path: Path, index: Releases) -> None:
    """From a mirror: its list is held to the control plane's digest, and its files to the list."""
    name, torch = next((n, d) for n, (d, _) in index.packages.items() if n.startswith("torch-2.13"))
    other, engine = next((n, d) for n, (d, _) in index.packages.items() if n.startswith("vllm"))
    digests = {n: hashlib.sha256(d).hexdigest() for n, d in ((name, torch), (other, engine))}
    listed = f"torch==2.13.0 --hash=sha256:{digests[name]}\nvllm==0.30.0 --hash=sha256:{digests[other]}\n".encode()
    of = f"vllm-0.30.0-cu13-{os.uname().machine}-requirements.txt"
    index.mirror[of] = listed
    mirror = sources(index, mirror=index.api, sha256={of: hashlib.sha256(listed).hexdigest()})
    assert work(tmp_path / "good", plan(), mirror)["type"] == "done"
    unknown = work(tmp_path / "unknown", plan(), sources(index, mirror=index.api))
    assert unknown["reason"]["code"] == "not_on_mirror"
    index.packages[name] = (torch + b"\0", "2026-09-01T18:00:00Z")
    changed = work(tmp_path / "changed", plan(), mirror)
    assert changed["reason"]["code"] == "uv_failed"
    assert "Hash mismatch" in changed["reason"]["sentence"]
    assert not list((tmp_path / "changed" / "vllm").iterdir())


def test_what_cannot_be_resolved_is_said_in_uvs_words(tmp_path: Path, index: Releases) -> None:
    index.packages = {n: f for n, f in index.packages.items() if not n.startswith("torch")}
    found = work(tmp_path, plan(), sources(index))
    assert found["reason"]["code"] == "uv_failed"
    assert "torch" in found["reason"]["sentence"]
    assert not found["passed"]
