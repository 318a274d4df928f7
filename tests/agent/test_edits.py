"""agent.yaml is edited under an agent that runs: real processes, a real engine, a real link."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.node.edits import Edits
from agent.node.home import open_home, write_atomically
from agent.node.settings import Settings, read
from agent.node.status import look
from agent.wire.messages import Hello, Report
from agent.wire.shard import ShardState
from tests.agent.control import Control
from tests.agent.node import ROOT, lives, tiny
from tests.agent.pki import Authority

PAPERS = {
    "node_id": "n1",
    "server": "wss://127.0.0.1:7443/agent/link",
    "tls": {"ca": "ca.pem", "cert": "c.pem", "key": "k.pem"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "agent.yaml"
    found.write_text(yaml.safe_dump(PAPERS))
    return found


def running(path: Path) -> Settings:
    found = read(path, {})
    assert isinstance(found, Settings)
    return found


def test_what_stands_still_is_judged_once(path: Path) -> None:
    edits = Edits(path, running(path), {})
    assert [edits.look() for _ in range(4)] == [False] * 4
    path.write_text(yaml.safe_dump({**PAPERS, "labels": {"rack": "b"}}))
    assert [edits.look() for _ in range(2)] == [False, True]
    assert edits.problem is None


def test_a_file_that_is_being_written_is_left_alone(path: Path) -> None:
    edits = Edits(path, running(path), {})
    whole = yaml.safe_dump({**PAPERS, "labels": {"rack": "b"}})
    for n in range(1, 40, 7):
        path.write_text(whole[:n])
        assert not edits.look()
        assert edits.problem is None
    path.unlink()  # as an editor does that puts another file in its place
    assert not edits.look()
    path.write_text(whole)
    assert [edits.look() for _ in range(2)] == [False, True]


def test_a_remark_starts_nothing(path: Path) -> None:
    edits = Edits(path, running(path), {})
    path.write_text(f"# a remark\n{path.read_text()}labels: {{}}\n")
    assert [edits.look() for _ in range(3)] == [False] * 3


@pytest.mark.parametrize(
    ("text", "said"), [("labels: [", "cannot be read"), ("server: http://x\n", "lacks node_id"), (None, "not exist")]
)
def test_what_does_not_load_is_told_until_it_does(path: Path, text: str | None, said: str) -> None:
    before = path.read_text()
    edits = Edits(path, running(path), {})
    path.unlink() if text is None else path.write_text(text)
    assert [edits.look() for _ in range(3)] == [False] * 3
    assert edits.problem is not None
    assert said in edits.problem
    assert edits.problem.endswith("; the agent runs on what it had")
    path.write_text(before)
    assert [edits.look() for _ in range(2)] == [False, False]
    assert edits.problem is None


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with Control(Authority(tmp_path / "pki")) as found:
        yield found


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "agent.node.main", *map(str, words)]


def ran(*words: object) -> str:
    return subprocess.run(command(*words), cwd=ROOT, capture_output=True, check=True, text=True).stdout


@pytest.mark.slow
async def test_engines_serve_while_the_agent_starts_again_on_its_edited_settings(
    control: Control, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    pair = control.authority.node("n1")
    tls = {"ca": "../pki/ca.pem", "cert": f"../pki/{pair.cert.name}", "key": f"../pki/{pair.key.name}"}
    papers = {"node_id": "n1", "server": control.url, "tls": tls}

    def edit(**more: Any) -> None:
        write_atomically(home / "agent.yaml", yaml.safe_dump({**papers, **more}).encode())

    async def hello(timeout_s: float) -> Hello:
        return await control.heard(lambda m: m if isinstance(m, Hello) else None, timeout_s)

    edit(labels={"rack": "a"})
    log = open(home / "stderr", "wb")  # noqa: SIM115 - the process's own
    agent = await asyncio.create_subprocess_exec(*command("run", "--home", home), cwd=ROOT, stderr=log)
    try:
        first = await hello(15)
        await control.want(tiny())
        ready = await control.shard("r-1.0", ShardState.READY, ShardState.FAILED)
        assert ready.pid is not None

        # What loads: the same process is another agent within ten seconds, and the engine the same one.
        control.said.clear()
        edit(labels={"rack": "b"})
        second = await hello(10)
        assert second.instance != first.instance
        report = await control.heard(lambda m: m if isinstance(m, Report) else None)
        assert report.facts.labels == {"rack": "b"}
        assert [(s.state, s.pid, s.adopted) for s in report.shards] == [(ShardState.READY, ready.pid, True)]
        assert (agent.returncode, look(open_home(home))["agent_pid"]) == (None, agent.pid)

        # What does not load: nothing starts again, and everybody is told.
        control.said.clear()
        edit(labels=["b"], server="http://x")
        async with asyncio.timeout(10):
            while not (told := look(open_home(home))["settings_problem"]):
                await asyncio.sleep(0.1)
        assert "labels in agent.yaml must hold names and values" in told
        assert "server in agent.yaml must be wss://" in told
        assert told in (home / "logs" / "agent.log").read_text()
        assert told in (await asyncio.to_thread(ran, "status", "--home", home)).splitlines()
        answer = await control.ask("doctor")
        worst = answer.body["findings"][0]
        assert (worst["check"], worst["level"], worst["reason"]["sentence"]) == ("settings", "problem", told)
        assert not any(isinstance(m, Hello) for m in control.said)

        # An engine that it did not start is its child all the same, and none is left a zombie.
        edit(labels={"rack": "b"})
        async with asyncio.timeout(10):
            while look(open_home(home))["settings_problem"]:
                await asyncio.sleep(0.1)
        assert not any(isinstance(m, Hello) for m in control.said)
        assert lives(ready.pid)
        os.kill(ready.pid, 9)
        failed = await control.shard("r-1.0", ShardState.FAILED)
        assert "SIGKILL" in (failed.reason or ""), failed
        assert not Path(f"/proc/{ready.pid}").exists()
    finally:
        agent.terminate()
        await agent.wait()
        log.close()
        await asyncio.to_thread(ran, "stop-engines", "--home", home)
