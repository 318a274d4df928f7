"""The process that installs, on a real disk and against a stand-in of GitHub: what it makes, what it refuses, and
what is left when it is killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.node.install.fetching import Sources
from agent.node.install.worker import INSTALL, LOOK, REMOVE, Job, carry_out
from agent.plans.steps import Check, Libraries, Plan, Program, ReleaseFile, Step, Unpack
from tests.agent.node import ROOT
from tests.agent.releases import Releases, serving, tar

REPOSITORY = "ggml-org/llama.cpp"
SERVER = b"""#!/bin/sh
case "$1" in
  --version) echo "version: 10991 (0123abcd)" >&2;;
  --list-devices) echo "Available devices:"; echo "  CUDA0: stand-in (1 MiB, 1 MiB free)";;
esac
"""
NAME = "llama-b10991-bin-ubuntu-x64.tar.gz"
FILE = ReleaseFile(REPOSITORY, "b10991", r"llama-b10991-bin-ubuntu-x64\.(tar\.gz|zip)")
VERSION = Check(("llama-server", "--version"), r"version: 10991\b", "it is not b10991", 10.0)


@pytest.fixture
def github() -> Iterator[Releases]:
    with serving() as releases:
        releases.add(REPOSITORY, "b10991", NAME, tar({"llama-b10991/llama-server": SERVER, "llama-b10991/libx.so.1": b"x", "llama-b10991/libx.so": "libx.so.1"}, executable=("llama-server",)))  # fmt: skip # noqa: E501
        yield releases


def plan(*steps: Step, again: tuple[Libraries | Check, ...] = (VERSION,), room: int = 0, build: str = "cpu") -> Plan:
    return Plan("llamacpp", "b10991", build, "llama-server", steps or (Unpack(FILE), VERSION), again, room)


def job(root: Path, github: Releases, of: Plan | None = None, do: str = INSTALL, **more: Any) -> Job:
    values: dict[str, Any] = {"sources": Sources(github=github.api), "retry_s": 0.01, **more}
    return Job(do, str(root), of or plan(), **values)


def begin(of: Job) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "agent.node.install.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(of))
    process.stdin.close()
    process.stdin = None
    return process


def work(of: Job) -> dict[str, Any]:
    """Its result, with all its words under `words`. Here, where a process of its own makes no difference."""
    words: list[str] = []
    found = msgspec.to_builtins(carry_out(of, words.append))
    return {**found, "words": words}


def left(root: Path) -> set[str]:
    """Everything that is there beside finished installations."""
    found = {str(p.relative_to(root)) for p in root.glob("*/*")}
    return {f for f in found if not (root / f / "llmgw-installed.json").exists()}


def test_a_release_is_fetched_checked_unpacked_run_and_named(tmp_path: Path, github: Releases) -> None:
    found = work(job(tmp_path, github))
    assert found["type"] == "done"
    folder = tmp_path / "llamacpp" / "b10991-cpu"
    assert found["path"] == str(folder / "llama-b10991" / "llama-server")
    assert [w.split(" (")[0].split(",")[0] for w in dict.fromkeys(found["words"])][:1] == [f"downloading {NAME}"]
    assert f"unpacking {NAME}" in found["words"]
    assert "checking llama-server --version" in found["words"]
    assert any(w.endswith("100 %") for w in found["words"])
    assert (folder / "llama-b10991" / "libx.so").resolve().name == "libx.so.1"
    assert {p.stat().st_mode & 0o777 for p in folder.rglob("*") if p.is_file()} == {0o755, 0o644}
    assert left(tmp_path) == set()
    asked = len(github.asked)
    assert work(job(tmp_path, github))["path"] == found["path"]  # again: nothing is asked
    assert len(github.asked) == asked
    assert work(job(tmp_path, github, do=LOOK))["type"] == "done"
    assert work(job(tmp_path, github, do=REMOVE))["type"] == "done"
    assert not folder.exists()


def test_a_runtime_comes_to_lie_beside_the_executable(tmp_path: Path, github: Releases) -> None:
    runtime = tar({"cudart/libcudart.so.13.0": b"cuda", "cudart/libcudart.so.13": "libcudart.so.13.0"})
    github.add(REPOSITORY, "b10991", "cudart.tar.gz", runtime)
    beside = Unpack(ReleaseFile(REPOSITORY, "b10991", r"cudart\.tar\.gz"), beside="llama-server")
    found = work(job(tmp_path, github, plan(Unpack(FILE), beside)))
    assert Path(found["path"]).with_name("libcudart.so.13").read_bytes() == b"cuda"


def test_a_download_that_breaks_off_goes_on_where_it_was(tmp_path: Path, github: Releases) -> None:
    data = tar({"b/llama-server": SERVER}, executable=("llama-server",), pad=3 * 2**20)
    github.add(REPOSITORY, "b10991", NAME, data)
    github.cut = 2**20
    found = work(job(tmp_path, github))
    assert found["type"] == "done"
    assert len([a for a in github.asked if a.startswith("/blob/")]) == len(data) // 2**20 + 1


@pytest.mark.parametrize(
    ("name", "code", "says", "passed"),
    [
        ("digest", "not_fetched", "SHA-256", False),
        ("no digest", "no_digest", "no SHA-256", True),
        ("no release", "no_such_release", "there is no release", True),
        ("no asset", "no_such_build", "has no file llama-b10991-bin-ubuntu-x64.tar.gz", True),
        ("limit", "github_limit", "for 41 s", False),
        ("away", "github_away", "cannot be asked", False),
        ("room", "no_room", "GiB free", False),
        ("archive", "bad_archive", "outside its folder", True),
        ("version", "check_failed", "it is not b10991: it says: version: 7", True),
        ("fails", "check_failed", "it ended with status 3: CUDA is not there", True),
        ("hangs", "check_failed", "no answer within", True),
        ("two", "no_program", "2 programs named llama-server", True),
        ("program", "missing_program", "no-such-program is not installed, and it is needed", True),
    ],
)
def test_what_cannot_be_installed_says_why_and_leaves_nothing(
    tmp_path: Path, github: Releases, name: str, code: str, says: str, passed: bool
) -> None:
    of = plan()
    api = github.api
    match name:
        case "digest":
            github.digests[NAME] = "sha256:" + "0" * 64
        case "no digest":
            github.digests[NAME] = ""
        case "no release":
            github.assets.clear()
        case "no asset":
            github.assets[(REPOSITORY, "b10991")] = {"llama-b10991-bin-macos-arm64.tar.gz": b""}
        case "limit":
            github.limited = True
        case "away":
            api = "http://127.0.0.1:9"
        case "room":
            of = plan(room=2**60)
        case "archive":
            github.add(REPOSITORY, "b10991", NAME, tar({"../evil": b"x"}))
        case "version":
            script = b"#!/bin/sh\necho version: 7\n"
            github.add(REPOSITORY, "b10991", NAME, tar({"llama-server": script}, executable=("llama-server",)))
        case "fails":
            script = b"#!/bin/sh\necho CUDA is not there >&2\nexit 3\n"
            github.add(REPOSITORY, "b10991", NAME, tar({"llama-server": script}, executable=("llama-server",)))
        case "hangs":
            script = b"#!/bin/sh\nexec sleep 30\n"
            github.add(REPOSITORY, "b10991", NAME, tar({"llama-server": script}, executable=("llama-server",)))
            of = plan(Unpack(FILE), Check(VERSION.argv, VERSION.expect, VERSION.otherwise, 0.3))
        case "two":
            files = {"a/llama-server": SERVER, "b/llama-server": SERVER}
            github.add(REPOSITORY, "b10991", NAME, tar(files, executable=("llama-server",)))
        case "program":
            of = plan(Program("no-such-program", "nosuch", "it is needed"), Unpack(FILE))
    found = work(job(tmp_path, github, of, sources=Sources(github=api)))
    assert found["type"] == "failed"
    assert found["reason"]["code"] == code
    assert says in found["reason"]["sentence"]
    assert found["passed"] is passed
    if name == "limit":
        assert found["wait_s"] == 41.0
    assert left(tmp_path) <= {".downloads/llamacpp"}
    assert not list(tmp_path.parent.glob("evil"))


def test_a_card_that_is_full_says_nothing_about_the_build(tmp_path: Path, github: Releases) -> None:
    script = b"#!/bin/sh\necho every card is full\nexit 1\n"
    github.add(REPOSITORY, "b10991", NAME, tar({"llama-server": script}, executable=("llama-server",)))
    check = Check(VERSION.argv, "computed", "it cannot compute", 10.0, later="every card is full")
    found = work(job(tmp_path, github, plan(Unpack(FILE), check)))
    assert (found["reason"]["code"], found["passed"]) == ("cards_busy", False)


def test_a_mirror_serves_what_the_control_plane_knows_and_nothing_else(tmp_path: Path, github: Releases) -> None:
    import hashlib

    data = github.assets[(REPOSITORY, "b10991")][NAME]
    github.mirror[NAME] = data
    digest = hashlib.sha256(data).hexdigest()
    unknown = work(job(tmp_path, github, sources=Sources(mirror=github.api)))
    assert (unknown["reason"]["code"], unknown["passed"]) == ("not_on_mirror", True)
    changed = work(job(tmp_path, github, sources=Sources(mirror=github.api, sha256={NAME: "0" * 64})))
    assert changed["reason"]["code"] == "not_fetched"
    found = work(job(tmp_path, github, sources=Sources(mirror=github.api, sha256={NAME: digest})))
    assert found["type"] == "done"
    assert not [a for a in github.asked if a.startswith("/repos/")]


def test_killed_in_the_middle_nothing_half_made_bears_a_name_and_the_next_one_goes_on(
    tmp_path: Path, github: Releases
) -> None:
    data = tar({"b/llama-server": SERVER}, executable=("llama-server",), pad=4 * 2**20)
    github.add(REPOSITORY, "b10991", NAME, data)
    github.slow = threading.Event()
    process = begin(job(tmp_path, github))
    part = until(lambda: next(iter(tmp_path.glob(".downloads/llamacpp/*/*.part")), None))
    until(lambda: part.stat().st_size > 2**20)
    process.kill()
    process.communicate(timeout=10)
    kept = part.stat().st_size
    assert 0 < kept < len(data)
    github.slow = None
    github.asked.clear()
    assert work(job(tmp_path, github))["type"] == "done"
    assert not [a for a in github.asked if a.startswith("/repos/")]  # it knows the release still
    assert left(tmp_path) == set()


@pytest.mark.parametrize("words", ["unpacking", "checking", "finishing"])
def test_killed_at_each_step(tmp_path: Path, github: Releases, words: str) -> None:
    """By a stop at the very word; then the kill."""
    process = begin(job(tmp_path, github))
    assert process.stdout is not None
    for line in process.stdout:
        if words in json.loads(line).get("words", ""):
            process.kill()
            break
    process.communicate(timeout=10)
    final = tmp_path / "llamacpp" / "b10991-cpu"
    if final.exists():  # the kill came after the name
        assert (final / "llmgw-installed.json").exists()
    assert work(job(tmp_path, github))["type"] == "done"
    assert left(tmp_path) == set()
    assert work(job(tmp_path, github, do=LOOK))["type"] == "done"


def test_only_one_installs_into_a_folder(tmp_path: Path, github: Releases) -> None:
    github.slow = threading.Event()
    github.add(REPOSITORY, "b10991", NAME, tar({"llama-server": SERVER}, executable=("llama-server",), pad=2**20))
    first = begin(job(tmp_path, github))
    until(lambda: list(tmp_path.glob(".downloads/llamacpp/*/*.part")))
    second = work(job(tmp_path, github))
    assert second["reason"]["code"] == "busy"
    github.slow.set()
    first.communicate(timeout=30)
    assert (tmp_path / "llamacpp" / "b10991-cpu").exists()


def test_it_dies_with_who_started_it(tmp_path: Path, github: Releases) -> None:
    github.slow = threading.Event()
    script = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-P', '-m', 'agent.node.install.worker'], stdin=subprocess.PIPE)\n"
        "p.stdin.write(sys.stdin.buffer.read()); p.stdin.close(); print(p.pid, flush=True); p.wait()\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(msgspec.json.encode(job(tmp_path, github)))
    starter.stdin.close()
    pid = int(starter.stdout.readline())
    until(lambda: list(tmp_path.glob(".downloads/llamacpp/*")))
    starter.kill()
    starter.wait(10)
    starter.stdout.close()
    until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, github: Releases) -> None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small file system is mounted for this: as root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", tmp_path], check=False, capture_output=True)  # fmt: skip # noqa: E501
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode()}")
    try:
        archive = tar({"llama-server": SERVER, "big": b"\0" * (8 * 2**20)}, executable=("llama-server",))
        github.add(REPOSITORY, "b10991", NAME, archive)
        found = work(job(tmp_path, github))
        assert found["type"] == "failed"
        assert not found["passed"]
        assert "No space left" in found["reason"]["sentence"] or "left: free some space" in found["reason"]["sentence"]
        assert not list(tmp_path.glob("llamacpp/*"))
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("known", [True, False])
def test_a_missing_library_is_named(tmp_path: Path, github: Releases, known: bool) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to make a program that lacks a library")
    name = "libvulkan.so.1" if known else "libcudart.so.99"
    program = linked(tmp_path / "make", name)
    github.add(REPOSITORY, "b10991", NAME, tar({"llama-server": program}, executable=("llama-server",)))
    of = plan(Unpack(FILE), Libraries(("llama-server",)))
    root = tmp_path / "root"
    found = work(job(root, github, of))
    if found["type"] == "done":
        pytest.skip(f"{name} is installed here")
    assert (found["reason"]["code"], found["passed"]) == ("missing_library", True)
    assert f"this machine lacks {name}, which llama-server needs" in found["reason"]["sentence"]
    if known:
        assert found["reason"]["command"] == "apt-get install -y libvulkan1"
    else:
        assert "it is part of the CUDA 99 runtime" in found["reason"]["sentence"]


def test_a_missing_package_is_installed_from_the_machines_own_sources(
    tmp_path: Path, github: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in of apt-get, which notes what it was asked."""
    if os.geteuid() != 0:
        pytest.skip("packages are installed by root alone")
    tools = tmp_path / "tools"
    tools.mkdir()
    asked = tmp_path / "asked"
    apt = f'#!/bin/sh\necho "$@" >> {asked}\nprintf "#!/bin/sh\\n" > {tools}/brought\nchmod +x {tools}/brought\n'
    (tools / "apt-get").write_text(apt)
    (tools / "apt-get").chmod(0o755)
    of = plan(Program("brought", "bringer", "it is needed"), Unpack(FILE))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    refused = work(job(tmp_path / "root", github, of))
    assert refused["reason"]["code"] == "missing_program"  # the agent was not allowed to
    assert not asked.exists()
    assert work(job(tmp_path / "root", github, of, packages=True))["type"] == "done"
    assert asked.read_text() == "install -y --no-install-recommends bringer\n"


def linked(folder: Path, library: str) -> bytes:
    """A program that needs a library of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.c").write_text("int x(void) { return 0; }\n")
    (folder / "main.c").write_text("int x(void); int main(void) { return x(); }\n")
    gcc = ["gcc", "-O0"]
    subprocess.run([*gcc, "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", "libx.so", "x.c"], cwd=folder, check=True)
    subprocess.run([*gcc, "-o", "main", "main.c", "-L.", "-lx"], cwd=folder, check=True)
    return (folder / "main").read_bytes()


def until(check: Any, timeout_s: float = 20.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
