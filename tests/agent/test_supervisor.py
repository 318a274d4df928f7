"""Shards on the real machine: real llama.cpp where it matters, scripted engines where one must misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import pytest

from agent import starter
from agent.core.readiness import Verdict, verdict
from agent.engine import Command, Engine, Paths, Rendezvous
from agent.node import installed, logs, probe, shardfile
from agent.node.clock import Clock
from agent.node.linux import LinuxHost
from agent.node.weights import Progress, Weights
from agent.wire.shard import ShardSpec, ShardState, Source
from tests.agent.node import KEY, Node, Scripted, lives, tiny

pytestmark = pytest.mark.slow
S = ShardState
MakeNode = Callable[..., Node]

SERVER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": sys.argv[2]}]}).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
def serve(): http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
async def make_node(tmp_path: Path) -> AsyncIterator[MakeNode]:
    made: list[Node] = []

    def make(name: str = "home", *, engine: Engine | None = None, **context: object) -> Node:
        made.append(Node(tmp_path / name, engine=engine, **context))
        return made[-1]

    yield make
    for node in made:
        last = await node.again()
        await last.close()


async def test_a_real_engine_comes_up_answers_and_goes(make_node: MakeNode) -> None:
    node = make_node()
    spec = tiny(memory_bytes=256 * 2**20)
    node.want(spec)
    ready = await node.state(S.READY, S.FAILED)
    assert ready.state is S.READY
    assert ready.pid is not None
    assert ready.memory_bytes is not None
    assert ready.memory_bytes > 10_000_000
    assert (ready.address, ready.port, ready.adopted, ready.fingerprint) == (
        "127.0.0.1", spec.port, False, spec.fingerprint
    )  # fmt: skip
    assert await probe.get("127.0.0.1", spec.port, "/v1/models", "wrong") is not None
    answers = [await probe.get("127.0.0.1", spec.port, p, KEY) for p in ("/health", "/v1/models")]
    assert verdict(answers[0], answers[1], "tiny") is Verdict.READY
    node.want()
    stopping = await node.until(lambda shards: not shards)
    assert stopping is True
    assert not lives(ready.pid)
    assert list(node.home.shards.iterdir()) == []
    assert not (node.home.logs / "r-1.0.log").exists()


def llama_server() -> str | None:
    return os.environ.get("LLMGW_TEST_LLAMA_SERVER") or shutil.which("llama-server")


@pytest.mark.skipif(llama_server() is None, reason="no llama-server on PATH, nor named by LLMGW_TEST_LLAMA_SERVER")
async def test_a_llama_server_executable_takes_the_same_flags(make_node: MakeNode) -> None:
    path = llama_server()
    (found,) = installed.engines({"llamacpp": str(path)}, None, None)
    assert (found.problem, found.build) == (None, "llama-server")
    node = make_node(engine_path=lambda name: path, import_from=None)
    node.want(tiny(memory_bytes=256 * 2**20))
    assert (await node.state(S.READY, S.FAILED)).state is S.READY
    other = make_node("other", engine_path=lambda name: path, import_from=None)
    other.want(tiny(args=("--no-such-flag",)))
    assert "invalid argument: --no-such-flag" in str((await other.state(S.FAILED)).reason)


async def test_embeddings(make_node: MakeNode) -> None:
    node = make_node()
    spec = tiny(embeddings=True, parallel=2, args=("--pooling", "mean"))
    node.want(spec)
    assert (await node.state(S.READY, S.FAILED)).state is S.READY
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as client:
        body = {"model": "tiny", "input": ["one", " ".join(["many words"] * 40)]}
        answer = await client.post(f"http://127.0.0.1:{spec.port}/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["data"]) == 2


async def test_the_key_reaches_the_engine_and_nobody_else(make_node: MakeNode) -> None:
    node = make_node()
    node.want(tiny())
    ready = await node.state(S.READY)
    assert KEY not in Path(f"/proc/{ready.pid}/cmdline").read_text()
    environ = dict(e.split("=", 1) for e in Path(f"/proc/{ready.pid}/environ").read_text().split("\0") if e)
    assert environ["LLAMA_API_KEY"] == KEY
    assert set(environ) <= {
        "LLAMA_API_KEY", "LLMGW_SHARD", "PATH", "HOME", "TMPDIR", "PYTHONPATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
        "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
    }  # fmt: skip
    assert KEY not in (node.home.logs / "r-1.0.log").read_text()
    files = list(node.home.shards.iterdir())
    assert [stat.S_IMODE(f.stat().st_mode) for f in files] == [0o600]


async def test_a_killed_engine_is_noticed_at_once(make_node: MakeNode) -> None:
    node = make_node()
    node.want(tiny())
    ready = await node.state(S.READY)
    assert ready.pid is not None
    os.kill(ready.pid, signal.SIGKILL)
    failed = await node.state(S.FAILED, timeout_s=2.0)
    assert failed.reason is not None
    assert failed.reason.startswith("llama.cpp was ended by SIGKILL")
    assert failed.last_words is not None
    assert 0 < len(failed.last_words) <= 20
    assert failed.pid is None
    node.supervisor.converge(node.desired, "127.0.0.1")
    assert node.supervisor.observed()[0].state is S.FAILED  # whether to try again is the control plane's to say
    assert node.desired is not None
    node.want(replace(node.desired.shards[0], incarnation=2))
    again = await node.state(S.READY)
    assert again.incarnation == 2


async def test_a_busy_engine_ends_at_once_also_where_it_was_stopped_before_it_was_ended(make_node: MakeNode) -> None:
    """As a machine that shuts down does it: SIGSTOP, SIGTERM, SIGCONT. Any thread may take the signal then."""
    node = make_node()
    node.want(tiny(parallel=8))
    ready = await node.state(S.READY)
    assert ready.pid is not None
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}], "max_tokens": 8000, "ignore_eos": True}

    async def asks() -> None:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=30) as client:
                await client.post(f"http://127.0.0.1:{ready.port}/v1/chat/completions", json=body)

    asking = [asyncio.create_task(asks()) for _ in range(4)]
    await asyncio.sleep(0.3)
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
        os.kill(ready.pid, number)
    failed = await node.state(S.FAILED, timeout_s=3.0)
    assert failed.reason == "llama.cpp ended with status 0"
    await asyncio.gather(*asking)


async def test_the_next_agent_takes_it_over(make_node: MakeNode) -> None:
    node = make_node()
    spec = tiny()
    node.want(spec)
    ready = await node.state(S.READY)
    assert ready.pid is not None
    second = await node.again()
    (adopted,) = second.supervisor.observed()
    assert (adopted.state, adopted.pid, adopted.adopted) == (S.READY, ready.pid, True)
    second.want(spec)
    assert second.supervisor.observed()[0].pid == ready.pid
    os.kill(ready.pid, signal.SIGKILL)
    failed = await second.state(S.FAILED, timeout_s=1.0)
    assert "ended by SIGKILL" in str(failed.reason)
    third = await second.again()
    assert third.supervisor.observed()[0].reason == failed.reason


async def test_an_agent_that_died_before_it_noted_the_process_finds_it(make_node: MakeNode) -> None:
    node = make_node()
    node.want(tiny())
    ready = await node.state(S.READY)
    (record,) = shardfile.read_all(node.home)
    node.supervisor.leave()
    shardfile.write(node.home, replace(record, processes=()))
    second = await node.again()
    (adopted,) = second.supervisor.observed()
    assert (adopted.state, adopted.pid) == (S.READY, ready.pid)


async def test_a_start_that_the_agent_did_not_live_to_make_begins_anew(make_node: MakeNode) -> None:
    node = make_node(weights=Stuck())
    spec = tiny()
    node.want(spec)
    await node.state(S.FETCHING)
    await asyncio.sleep(0.1)
    assert len(shardfile.read_all(node.home)) == 1
    second = await node.again()
    assert second.supervisor.observed() == ()
    third = make_node()
    await third.supervisor.recover()
    third.want(spec)
    assert (await third.state(S.READY, S.FAILED)).state is S.READY


class Stuck:
    """Weights that never come."""

    folder = Path("/nonexistent")

    async def fetch(self, source: Source, progress: Progress) -> Path:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_reused_pid_is_not_touched(make_node: MakeNode) -> None:
    node = make_node()
    node.want(tiny())
    ready = await node.state(S.READY)
    assert ready.pid is not None
    (record,) = shardfile.read_all(node.home)
    node.supervisor.leave()
    os.kill(ready.pid, signal.SIGKILL)
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        (identity,) = record.processes
        shardfile.write(node.home, replace(record, processes=(replace(identity, pid=stranger.pid),)))
        second = await node.again()
        (shard,) = second.supervisor.observed()
        assert shard.state is S.FAILED
        assert "no longer there" in str(shard.reason)
        await second.close()
        assert stranger.poll() is None
        # The same number and start time, of another boot: not ours either.
        found = LinuxHost().members({"a": [replace(identity, pid=stranger.pid, boot_id="another")]})
        assert found == {"a": ()}
        start_ticks = int(Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19])
        other_boot = replace(identity, pid=stranger.pid, start_ticks=start_ticks, boot_id="another")
        shardfile.write(node.home, replace(record, processes=(other_boot,)))
        third = await node.again()
        assert third.supervisor.observed() == ()  # no failure of its own: it begins anew when it is asked for
        third.want(tiny())
        await third.state(S.READY)
        (record,) = shardfile.read_all(node.home)
        assert record.reboots == 1
        await third.close()
        other = replace(record, processes=(other_boot,), reboots=3)
        shardfile.write(node.home, replace(other, since=record.since - 4000))
        assert (await third.again()).supervisor.observed() == ()  # the restarts before are long ago
        shardfile.write(node.home, other)
        fourth = await third.again()
        (shard,) = fourth.supervisor.observed()
        assert (shard.state, shard.reason) == (
            S.FAILED, "the machine was restarted again and again soon after it began"
        )  # fmt: skip
        await fourth.close()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_ours_that_nobody_describes_is_ended_and_only_ours(make_node: MakeNode) -> None:
    node, other = make_node(), make_node("other")
    node.want(tiny())
    other.want(tiny("r-2.0"))
    mine = await node.state(S.READY)
    theirs = await other.state(S.READY, shard_id="r-2.0")
    assert mine.pid is not None
    assert theirs.pid is not None
    node.supervisor.leave()
    (path,) = node.home.shards.glob("*.json")
    path.write_text("{ damaged")
    (node.home.shards / ".r-1.0.json.4194304.0a0b0c0d").write_text("a write that was cut short")
    second = await node.again()
    assert second.supervisor.observed() == ()
    assert not lives(mine.pid)
    assert lives(theirs.pid)
    assert [p.suffix for p in node.home.shards.iterdir()] == [".damaged"]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"<html>not found</html>", "is no GGUF file"),
        (
            starter.path("tiny").read_bytes()[:600_000],
            f"is truncated: it has 600000 of at least {starter.path('tiny').stat().st_size} bytes",
        ),
    ],
    ids=["missing", "empty", "no-gguf", "truncated"],
)
async def test_a_bad_model_file_is_said_in_one_sentence(
    make_node: MakeNode, tmp_path: Path, content: bytes | None, wanted: str
) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    node = make_node()
    node.want(tiny(source=f"path:{path}"))
    failed = await node.state(S.FAILED)
    assert wanted in str(failed.reason)
    assert str(path) in str(failed.reason)
    # Started by hand, the launcher says the same; that is what a log shows.
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "agent.launchers.llamacpp_server", "--model", path, "--port", "0"],
        env={"LLAMA_API_KEY": "k", "PYTHONPATH": str(Path.cwd()), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert wanted in ran.stderr


async def test_what_cannot_run_here_is_refused(make_node: MakeNode) -> None:
    node = make_node()
    two = replace(tiny("r-4.0"), world_size=2)
    strange = replace(tiny(), shard_id="../r-5/0")
    node.want(
        strange,
        tiny(engine="other"),
        tiny("r-2.0", args=("--host", "::")),
        tiny("r-3.0", env={"LD_PRELOAD": "/x"}),
        two,
    )
    assert "cannot be a shard's id" in str((await node.state(S.FAILED, shard_id="../r-5/0")).reason)
    assert "knows no engine 'other'" in str((await node.state(S.FAILED)).reason)
    assert "--host is refused" in str((await node.state(S.FAILED, shard_id="r-2.0")).reason)
    assert "runs on one node" in str((await node.state(S.FAILED, shard_id="r-4.0")).reason)
    dropped = await node.state(S.READY, shard_id="r-3.0")
    assert "LD_PRELOAD" not in Path(f"/proc/{dropped.pid}/environ").read_text()


async def test_a_taken_port_is_named(make_node: MakeNode) -> None:
    node, other = make_node(), make_node("other")
    spec = tiny()
    other.want(spec)
    await other.state(S.READY)
    node.want(spec)
    failed = await node.state(S.FAILED)
    assert f"port {spec.port} on 127.0.0.1 cannot be taken" in str(failed.reason)


async def test_another_process_on_the_port_is_not_taken_for_the_engine(make_node: MakeNode) -> None:
    node = make_node(engine=Scripted("import time; time.sleep(60)"))
    spec = tiny(engine="scripted", startup_timeout_s=1.5)
    node.want(spec)
    await node.state(S.STARTING)
    stranger = subprocess.Popen([sys.executable, "-c", SERVER + "serve()", str(spec.port), "tiny"])
    try:
        said = await node.until(lambda shards: next((s for s in shards if s.reason), None))
        assert said.state is not S.READY
        assert f"another process answers on port {spec.port}" in str(said.reason)
        failed = await node.state(S.FAILED)
        assert "did not become ready within 1.5 s" in str(failed.reason)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


STRAGGLERS = (
    SERVER
    + """
import os, signal, time
for setsid in (False, True):
    if os.fork() == 0:
        if setsid:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("child", os.getpid(), flush=True)
        time.sleep(120)
        os._exit(0)
serve()
"""
)


def children(node: Node) -> list[int]:
    lines = logs.tail(node.home.logs / "r-1.0.log", 10)
    return [int(line.split()[1]) for line in lines if line.startswith("child")]


@pytest.mark.parametrize("how", ["stopped", "killed", "agent_killed"])
async def test_no_straggler_survives(make_node: MakeNode, how: str) -> None:
    node = make_node(engine=Scripted(STRAGGLERS))
    node.want(tiny(engine="scripted", stop_grace_s=0.3))
    ready = await node.state(S.READY)
    assert ready.pid is not None
    pids = children(node)
    assert len(pids) == 2
    assert all(lives(p) for p in pids)
    if how == "stopped":
        node.want()
        await node.until(lambda shards: not shards)
    elif how == "killed":
        os.kill(ready.pid, signal.SIGKILL)
        await node.state(S.FAILED)
    else:
        node.supervisor.leave()
        os.kill(ready.pid, signal.SIGKILL)
        second = await node.again()
        assert second.supervisor.observed()[0].state is S.FAILED
    assert [p for p in pids if lives(p)] == []


async def test_a_sidecar_lives_and_dies_with_its_shard(make_node: MakeNode) -> None:
    node = make_node(engine=Scripted(SERVER + "serve()", sidecar="import time; time.sleep(120)"))
    node.want(tiny(engine="scripted"))
    await node.state(S.READY)
    (record,) = shardfile.read_all(node.home)
    sidecar, server = (p.pid for p in record.processes)
    os.kill(sidecar, signal.SIGKILL)
    failed = await node.state(S.FAILED)
    assert str(failed.reason).startswith("a sidecar of scripted was ended by SIGKILL")
    assert not lives(server)


class Headed(Scripted):
    """As an engine under Ray: its head is a sidecar, and the server waits until that listens."""

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        head, server = super().commands(shard, paths, host)
        return head, replace(server, waits_for=Rendezvous("127.0.0.1", shard.port + 1, 20.0))


async def test_a_head_that_dies_while_it_is_waited_for_fails_the_shard_at_once(make_node: MakeNode) -> None:
    node = make_node(engine=Headed(SERVER + "serve()", sidecar="raise OSError('no room in /dev/shm')"))
    node.want(tiny(engine="scripted"))
    failed = await node.state(S.FAILED, timeout_s=10)
    assert str(failed.reason).startswith("a sidecar of scripted ended with status 1 while starting: OSError: no room")


async def test_an_agent_that_died_between_two_of_its_processes_begins_the_shard_anew(make_node: MakeNode) -> None:
    node = make_node(engine=Headed(SERVER + "serve()", sidecar="import time; time.sleep(120)"))
    spec = tiny(engine="scripted")
    node.want(spec)
    await node.until(lambda shards: next((s for s in shards if s.reason and s.reason.startswith("it waits for")), None))
    (record,) = shardfile.read_all(node.home)
    (head,) = record.processes
    assert record.parts == 2
    second = await node.again()
    assert second.supervisor.observed() == (), "a part of a shard is no shard"
    assert not lives(head.pid)


async def test_an_engine_that_ignores_sigterm_is_killed(make_node: MakeNode) -> None:
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER + "serve()"
    node = make_node(engine=Scripted(script))
    node.want(tiny(engine="scripted", stop_grace_s=0.2))
    ready = await node.state(S.READY)
    node.want()
    stopping = await node.state(S.STOPPING)
    assert stopping.pid == ready.pid
    await node.until(lambda shards: not shards)
    assert ready.pid is not None
    assert not lives(ready.pid)


async def test_a_start_that_takes_too_long_is_ended(make_node: MakeNode) -> None:
    node = make_node(engine=Scripted("import time; print('thinking', flush=True); time.sleep(120)"))
    node.want(tiny(engine="scripted", startup_timeout_s=0.6))
    failed = await node.state(S.FAILED, timeout_s=5)
    assert failed.reason == "scripted did not become ready within 0.6 s and was ended"
    assert failed.last_words == ("thinking",)


async def test_steps_of_the_wall_clock_end_nothing(make_node: MakeNode) -> None:
    wall = [1_000_000_000.0]
    node = make_node(clock=Clock(wall=lambda: wall[0]))
    node.want(tiny(startup_timeout_s=30.0))
    wall[0] += 10 * 365 * 86400.0
    ready = await node.state(S.READY, S.FAILED)
    wall[0] = 5.0
    second = await node.again()
    assert second.supervisor.observed()[0].state is S.READY
    assert second.supervisor.observed()[0].pid == ready.pid


async def test_a_log_stays_short_and_its_end_is_kept(make_node: MakeNode) -> None:
    script = (
        SERVER
        + """
import threading, time
def chat():
    n = 0
    while True:
        print(f"line {n} " + "x" * 500, flush=True); n += 1
        if n % 400 == 0: time.sleep(0.01)
threading.Thread(target=chat, daemon=True).start()
serve()
"""
    )
    node = make_node(engine=Scripted(script), log_bytes=2_000_000)
    node.want(tiny(engine="scripted"))
    ready = await node.state(S.READY)
    log = node.home.logs / "r-1.0.log"
    sizes = []
    for _ in range(20):
        await asyncio.sleep(0.05)
        node.supervisor.measure()
        sizes.append(log.stat().st_size)
    assert ready.pid is not None
    assert lives(ready.pid)
    assert (node.home.logs / "r-1.0.log.1").exists()
    assert max(sizes) < 40_000_000
    assert len(logs.tail(log, 5)) == 5


async def test_a_full_disk_for_the_log_costs_lines_only(make_node: MakeNode) -> None:
    node = make_node()
    (node.home.logs / "r-1.0.log").symlink_to("/dev/full")
    spec = tiny(args=("--verbosity", "5"))
    node.want(spec)
    ready = await node.state(S.READY, S.FAILED)
    assert ready.state is S.READY
    for _ in range(20):
        answer = await probe.get("127.0.0.1", spec.port, "/v1/models", KEY)
        assert answer is not None
        assert answer.status == 200
    node.supervisor.measure()
    assert ready.pid is not None
    assert lives(ready.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
async def test_a_full_file_system_ends_no_engine(make_node: MakeNode, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        node = make_node()
        (node.home.logs / "r-1.0.log").symlink_to(folder / "log")
        spec = tiny()
        node.want(spec)
        ready = await node.state(S.READY)
        with pytest.raises(OSError, match="No space left"), (folder / "log").open("ab") as f:
            f.write(b"x" * 1_000_000)
        for _ in range(5):
            assert await probe.get("127.0.0.1", spec.port, "/v1/models", KEY) is not None
        logs.keep_short(folder / "log", longest=1000)
        assert (folder / "log").stat().st_size == 0
        assert ready.pid is not None
        assert lives(ready.pid)
        node.want()
        await node.until(lambda shards: not shards)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def test_a_record_that_cannot_be_written_is_a_refusal(make_node: MakeNode) -> None:
    node = make_node()
    node.home.shards.rmdir()
    node.home.shards.write_text("in the way")
    node.want(tiny())
    failed = await node.state(S.FAILED)
    assert "record could not be written" in str(failed.reason)
    node.home.shards.unlink()
    node.home.shards.mkdir()


async def test_a_restart_waits_until_the_old_one_is_gone(make_node: MakeNode) -> None:
    node = make_node()
    spec = tiny()
    node.want(spec)
    first = await node.state(S.READY)
    node.want(replace(spec, incarnation=2))
    second = await node.until(
        lambda shards: next((s for s in shards if s.incarnation == 2 and s.state is S.READY), None)
    )
    assert second.pid != first.pid
    assert first.pid is not None
    assert not lives(first.pid)


async def test_it_can_be_stopped_while_it_starts(make_node: MakeNode) -> None:
    node = make_node(engine=Scripted("import time; time.sleep(120)"))
    node.want(tiny(engine="scripted"))
    await node.state(S.STARTING)
    await asyncio.sleep(0.1)
    node.want()
    await node.until(lambda shards: not shards, timeout_s=3)
    assert LinuxHost().marked(node.home.id) == ()


OPEN_PYTHON = Path("/usr/bin/python3")  # one that every user may run; a virtual environment's may be in a closed home


def open_up(folder: Path) -> None:
    for f in (folder, *folder.parents):
        if f.stat().st_uid == os.geteuid() and len(f.parts) > 2:
            f.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="running engines as another user needs root")
@pytest.mark.skipif(not OPEN_PYTHON.exists(), reason=f"{OPEN_PYTHON} is not there")
async def test_engines_run_as_their_own_user(make_node: MakeNode, tmp_path: Path) -> None:
    open_up(tmp_path)
    script = SERVER + "open('mine', 'w').close(); serve()"
    node = make_node(
        engine=Scripted(script),
        engine_user="nobody",
        engine_path=lambda name: str(OPEN_PYTHON),
        import_from=None,
        weights=Weights(tmp_path / "weights"),
    )
    node.want(tiny(engine="scripted", source=f"path:{_open_model(tmp_path)}"))
    found = await node.state(S.READY, S.FAILED)
    assert found.state is S.READY, found
    status = Path(f"/proc/{found.pid}/status").read_text()
    ids = {line.split()[0]: set(line.split()[1:]) for line in status.splitlines() if line[:3] in ("Uid", "Gid", "Gro")}
    assert ids == {"Uid:": {"65534"}, "Gid:": {"65534"}, "Groups:": set()}
    assert (node.home.scratch / "r-1.0" / "mine").exists()
    second = await node.again()
    assert second.supervisor.observed()[0].pid == found.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="running engines as another user needs root")
@pytest.mark.parametrize("what", ["the engine", "the launcher"])
async def test_a_closed_interpreter_is_named(make_node: MakeNode, tmp_path: Path, what: str) -> None:
    open_up(tmp_path)
    closed = tmp_path / "closed"
    (closed / "bin").mkdir(parents=True)
    (closed / "bin" / "python3").symlink_to(OPEN_PYTHON)
    closed.chmod(0o700)
    inside: dict[str, object] = {"engine_path": lambda name: str(closed / "bin" / "python3"), "import_from": None}
    if what == "the launcher":
        inside = {"engine_path": lambda name: str(OPEN_PYTHON), "import_from": str(closed)}
    node = make_node(engine_user="nobody", **inside)
    node.want(tiny(source=f"path:{_open_model(tmp_path)}"))
    failed = await node.state(S.FAILED)
    assert f"the user 'nobody' cannot reach {what}" in str(failed.reason) or what == "the launcher"
    assert str(closed) in str(failed.reason)


def _open_model(folder: Path) -> Path:
    path = folder / "open.gguf"
    path.write_bytes(starter.path("tiny").read_bytes())
    path.chmod(0o644)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="running engines as another user needs root")
async def test_a_closed_folder_is_named(make_node: MakeNode, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    path = closed / "m.gguf"
    path.write_bytes(starter.path("tiny").read_bytes())
    open_up(tmp_path)
    node = make_node(engine_user="nobody", engine_path=lambda name: "/usr/bin/env", import_from=None)
    node.want(tiny(source=f"path:{path}"))
    failed = await node.state(S.FAILED)
    assert failed.reason == f"the user 'nobody' cannot reach the model file {path}: {closed} is closed to it"
    assert msgspec.json.decode((node.home.shards / "r-1.0.json").read_bytes())["ended"]["state"] == "failed"
    assert json.dumps(failed.last_words) == "null"


async def test_an_engine_that_is_slow_to_answer_a_new_agent_is_given_its_time(make_node: MakeNode) -> None:
    node = make_node(engine=Scripted(SERVER + "serve()"))
    node.want(tiny(engine="scripted", startup_timeout_s=3.0))
    ready = await node.state(S.READY)
    assert ready.pid is not None
    await asyncio.sleep(2.5)
    os.kill(ready.pid, signal.SIGSTOP)  # busy: it answers nobody for a moment
    second = await node.again(settled_s=0.1)
    second.desired = node.desired
    await asyncio.sleep(1.0)
    os.kill(ready.pid, signal.SIGCONT)
    again = await second.state(S.READY, S.FAILED)
    assert (again.state, again.pid) == (S.READY, ready.pid)


async def test_an_engine_that_serves_no_more_is_ended_after_its_time(make_node: MakeNode) -> None:
    closing = (
        SERVER
        + """
import threading, time
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
time.sleep(1.5)
server.shutdown(); server.server_close()
time.sleep(3600)
"""
    )
    node = make_node(engine=Scripted(closing))
    node.want(tiny(engine="scripted", startup_timeout_s=2.0))
    await node.state(S.READY)
    failed = await node.state(S.FAILED, timeout_s=15)
    assert "no longer answers on its port" in str(failed.reason)
