"""`llmgw-agent` as a person and a supervisor use it: real processes, a real control plane's link."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import yaml
from cryptography import x509

from agent.core import joining
from agent.node import settings as agent_settings
from agent.wire.messages import Hello, Refused, Report
from agent.wire.shard import ShardState
from tests.agent.control import Control
from tests.agent.node import KEY, ROOT, lives, tiny
from tests.agent.pki import Authority

pytestmark = pytest.mark.slow
S = ShardState


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "agent.node.main", *map(str, args)]


def ran(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), cwd=ROOT, capture_output=True, text=True, timeout=30)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
async def control(authority: Authority) -> AsyncIterator[Control]:
    async with Control(authority) as c:
        yield c


@pytest.fixture
def home(tmp_path: Path, control: Control) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    pair = control.authority.node("n1")
    tls = {"ca": "../pki/ca.pem", "cert": f"../pki/{pair.cert.name}", "key": f"../pki/{pair.key.name}"}
    (folder / "agent.yaml").write_text(yaml.safe_dump({"node_id": "n1", "server": control.url, "tls": tls}))
    yield folder
    assert ran("stop-engines", "--home", folder).returncode == 0


class Agents:
    """Agent processes of one test; what still runs at its end is ended."""

    def __init__(self) -> None:
        self.running: list[Process] = []

    async def start(self, home: Path) -> Process:
        process = await asyncio.create_subprocess_exec(
            *command("run", "--home", home), cwd=ROOT, stderr=subprocess.DEVNULL
        )
        self.running.append(process)
        return process


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    found = Agents()
    yield found
    for process in found.running:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def report(control: Control) -> Report:
    return await control.heard(lambda m: m if isinstance(m, Report) else None)


async def test_an_agent_that_is_killed_or_ended_leaves_its_engines_to_the_next(
    control: Control, home: Path, agents: Agents
) -> None:
    began = time.monotonic()
    first = await agents.start(home)
    said = await report(control)
    assert time.monotonic() - began < 10
    assert said.facts.cpu_count
    assert [e.name for e in said.facts.engines or ()] == ["llamacpp"]
    assert said.facts.ports_taken is not None
    await control.want(tiny())
    ready = await control.shard("r-1.0", S.READY, S.FAILED)
    assert ready.pid is not None

    memory = psutil.Process(first.pid).memory_info().rss
    assert memory < 60_000_000, f"the agent holds {memory} bytes"
    busy = psutil.Process(first.pid).cpu_times()
    await asyncio.sleep(1.0)
    later = psutil.Process(first.pid).cpu_times()
    assert later.user + later.system - busy.user - busy.system < 0.1

    first.kill()
    await first.wait()
    control.said.clear()
    second = await agents.start(home)
    (shard,) = (await report(control)).shards
    assert (shard.state, shard.pid, shard.adopted) == (S.READY, ready.pid, True)

    second.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(second.wait(), 3) == 0
    assert lives(ready.pid)
    control.said.clear()
    await agents.start(home)
    (shard,) = (await report(control)).shards
    assert (shard.state, shard.pid) == (S.READY, ready.pid)
    for log in (home / "logs").iterdir():
        assert KEY not in log.read_text()


async def test_status_and_stop_engines(control: Control, home: Path, agents: Agents) -> None:
    agent = await agents.start(home)
    await control.want(tiny())
    ready = await control.shard("r-1.0", S.READY)
    said = json.loads((await asyncio.to_thread(ran, "status", "--home", home, "--json")).stdout)
    assert said["agent_pid"] == agent.pid
    assert said["link"]["state"] == "connected"
    assert [(s["shard_id"], s["state"], s["pid"]) for s in said["shards"]] == [("r-1.0", "running", ready.pid)]
    agent.send_signal(signal.SIGTERM)
    await agent.wait()
    shown = (await asyncio.to_thread(ran, "status", "--home", home)).stdout
    assert shown.startswith("agent: not running")
    ended = await asyncio.to_thread(ran, "stop-engines", "--home", home)
    assert (ended.returncode, ended.stdout) == (0, "1 engine ended\n")
    assert ready.pid is not None
    assert not lives(ready.pid)
    assert list((home / "shards").iterdir()) == []
    # The next agent starts what is wanted again, as nothing failed.
    control.said.clear()
    await agents.start(home)
    again = await control.shard("r-1.0", S.READY)
    assert again.pid != ready.pid


async def test_a_second_agent_on_the_same_home_is_refused(control: Control, home: Path, agents: Agents) -> None:
    first = await agents.start(home)
    await report(control)
    second = await asyncio.to_thread(ran, "run", "--home", home)
    assert second.returncode == 1
    assert f"another agent (pid {first.pid}) works in {home}" in second.stderr


async def test_the_doctor_tells_a_refusal(control: Control, home: Path, agents: Agents) -> None:
    control.refuse = Refused("certificate_revoked", "the certificate was revoked")
    await agents.start(home)
    await control.heard(lambda m: m if isinstance(m, Hello) else None)
    async with asyncio.timeout(5):
        while not (home / "status.json").exists():
            await asyncio.sleep(0.05)
    said = await asyncio.to_thread(ran, "doctor", "--home", home)
    assert said.returncode == 1
    assert said.stdout.startswith("✗ link: the certificate was revoked")


async def test_doctor(control: Control, home: Path) -> None:
    said = await asyncio.to_thread(ran, "doctor", "--home", home, "--json")
    told = json.loads(said.stdout)
    found = {f["check"]: f["level"] for f in told["findings"]}
    assert said.returncode == 0
    assert told["facts"]["engines"][0]["name"] == "llamacpp"
    assert found["engines"] == "ok"
    assert "link" not in found
    settings = yaml.safe_load((home / "agent.yaml").read_text())
    changed = {**settings, "server": "wss://127.0.0.1:9/agent/link", "nods": 1, "engine_user": "no-such-user"}
    (home / "agent.yaml").write_text(yaml.safe_dump(changed))
    said = await asyncio.to_thread(ran, "doctor", "--home", home)
    assert said.returncode == 1
    assert "✗ link: nothing listens on" in said.stdout
    assert "'nods', which is not known here" in said.stdout
    assert "'no-such-user' does not exist" in said.stdout or "as root" in said.stdout


def test_what_is_asked_for_must_make_sense(tmp_path: Path) -> None:
    assert ran("sing").returncode == 2
    assert ran("status", "--home", tmp_path / "none").returncode == 2
    no_settings = ran("run", "--home", tmp_path / "new")
    assert no_settings.returncode == 2
    assert "join a cluster first (llmgw-agent join CODE)" in no_settings.stderr
    (tmp_path / "new" / "agent.yaml").write_text("node_id: 'a b'\nserver: http://x\ntls: {ca: x}\n")
    bad = ran("run", "--home", tmp_path / "new")
    assert bad.returncode == 2
    assert bad.stderr.count("llmgw-agent: ") == 3
    assert "Traceback" not in bad.stderr


class Portal(ThreadingHTTPServer):
    """The portal's side of joining, as the agreement has it."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(("127.0.0.1", 0), _Join)
        self.authority = authority
        self.secret = os.urandom(16).hex()
        self.answers_as: str | None = None
        self.used = False

    @property
    def code(self) -> str:
        body = {"u": f"http://127.0.0.1:{self.server_address[1]}", "s": self.secret, "n": "n7"}
        return base64.urlsafe_b64encode(json.dumps(body).encode()).rstrip(b"=").decode()


class _Join(BaseHTTPRequestHandler):
    server: Portal

    def do_POST(self) -> None:
        portal = self.server
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        mark = joining.request_mark(portal.secret, asked["node_id"], asked["csr"])
        assert self.path == "/agent/join"
        assert portal.secret not in json.dumps(asked)
        if portal.used or mark != asked["mac"]:
            self._say(403, {"error": {"code": "code_used", "message": "the code was used already"}})
            return
        portal.used = True
        certificate = portal.authority.sign(asked["csr"].encode())
        authority, server = portal.authority.pem.read_text(), "wss://127.0.0.1:7443/agent/link"
        mac = joining.answer_mark(portal.answers_as or portal.secret, certificate, authority, server)
        self._say(200, {"certificate": certificate, "authority": authority, "server": server, "mac": mac})

    def _say(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def portal(authority: Authority) -> Iterator[Portal]:
    server = Portal(authority)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_joining_by_code(portal: Portal, tmp_path: Path) -> None:
    home = tmp_path / "joined"
    home.mkdir()
    (home / "agent.yaml").write_text("labels: {rack: a}\n")
    done = ran("join", portal.code, "--home", home, "--address", "10.0.0.7")
    assert done.returncode == 0, done.stderr
    assert "joined as n7" in done.stdout
    found = agent_settings.read(home / "agent.yaml", {})
    assert isinstance(found, agent_settings.Settings)
    assert (found.node_id, found.address, found.labels) == ("n7", "10.0.0.7", {"rack": "a"})
    assert found.tls.key.stat().st_mode & 0o777 == 0o600
    certificate = x509.load_pem_x509_certificate(found.tls.cert.read_bytes())
    assert certificate.subject.rfc4514_string() == "CN=n7"
    again = ran("join", portal.code, "--home", home)
    assert again.returncode == 1
    assert "refused: the code was used already" in again.stderr


def test_an_answer_from_somebody_else_is_not_believed(portal: Portal, tmp_path: Path) -> None:
    portal.answers_as = "another secret"
    done = ran("join", portal.code, "--home", tmp_path / "joined")
    assert done.returncode == 1
    assert "does not know the code's secret" in done.stderr
    assert not (tmp_path / "joined" / "agent.yaml").exists()
    assert ran("join", "nonsense", "--home", tmp_path / "joined").returncode == 1
