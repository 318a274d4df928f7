"""An engine's commands carried out as the agent does, and asked as the agent and the gateway ask."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.core import environment
from agent.core.readiness import Response, Verdict, verdict
from agent.engine import Command, Engine, Paths
from agent.engines import ENGINES
from agent.node import launchers
from agent.wire.shard import ShardSpec

ROOT = Path(__file__).resolve().parents[3]
STANDIN = Path(__file__).parent / "standin"


def free_ports(count: int = 1, host: str = "127.0.0.1") -> list[int]:
    sockets = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def stand_in(name: str, folder: Path) -> str:
    """The executable (or interpreter) of an engine that a stand-in plays; Ray's beside vLLM's."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = f"{STANDIN / 'packages'}:{ROOT}"
    scripts = {
        "vllm": (f"{ROOT}", "-m tests.agent.engines.standin.vllm"),
        "ray": (f"{ROOT}", "-m tests.agent.engines.standin.ray"),
        "python": (packages, ""),
    }
    wanted = ("vllm", "ray") if name == "vllm" else ("python",)
    for script in wanted:
        path, module = scripts[script]
        # What the agent puts onto the path comes first: our package must be the one that it laid out.
        text = f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{path}"\nexec {sys.executable} {module} "$@"\n'
        (folder / script).write_text(text)
        (folder / script).chmod(0o755)
    return str(folder / wanted[0])


@dataclass
class Running:
    """The processes of one shard."""

    shard: ShardSpec
    paths: Paths
    host: str = "127.0.0.1"
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    seen: list[Verdict] = field(default_factory=list)
    """What the probes said, each once."""

    @property
    def engine(self) -> Engine:
        return ENGINES[self.shard.profile.engine]

    def start(self) -> None:
        scratch = Path(self.paths.scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        imports = str(ROOT)
        if self.engine.capabilities.launchers:
            launchers.lay_out(self.engine.capabilities.launchers, scratch, None)
            imports = launchers.folder(self.paths.scratch)
        for command in self.engine.commands(self.shard, self.paths, self.host):
            self._start(command, imports)

    def verdict(self) -> Verdict:
        probes = self.engine.probes(self.shard)
        answers = [self._ask("GET", path, timeout_s=2.0) for path in (probes.alive, probes.ready)]
        found = verdict(*(a and Response(a[0], a[1]) for a in answers), self.shard.model)
        if not self.seen or self.seen[-1] is not found:
            self.seen.append(found)
        return found

    def until_ready(self, timeout_s: float) -> float:
        """Seconds that it took."""
        began = time.monotonic()
        until = began + timeout_s
        while self.verdict() is not Verdict.READY:
            for process in self.processes:
                assert process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.02)
        return time.monotonic() - began

    def get(self, path: str, key: str | None) -> tuple[int, bytes]:
        found = self._ask("GET", path, key)
        assert found is not None
        return found

    def post(self, path: str, body: dict[str, Any], key: str | None) -> tuple[int, bytes]:
        found = self._ask("POST", path, key, body, 60.0)
        assert found is not None
        return found

    def command_lines(self) -> str:
        """Of every process of the shard, as anybody on the node reads them."""
        sessions = {p.pid for p in self.processes}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) in sessions:
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except (OSError, ValueError):
                continue
        return "\n".join(found)

    def end(self, timeout_s: float = 10.0) -> float:
        """SIGTERM to the server, as at a shard's end; seconds until it is gone."""
        began = time.monotonic()
        self.processes[-1].terminate()
        self.processes[-1].wait(timeout_s)
        return time.monotonic() - began

    def clean(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def log(self) -> str:
        return Path(self.paths.scratch, "log").read_text(errors="replace")[-4000:]

    def _start(self, command: Command, imports: str) -> None:
        if command.waits_for is not None:
            meeting, until = command.waits_for, time.monotonic() + 20
            while True:
                try:
                    socket.create_connection((meeting.host, meeting.port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < until, self.log()
                    time.sleep(0.02)
        scratch = Path(self.paths.scratch)
        env = environment.for_engine(os.environ, command, mark="t", scratch=str(scratch), import_from=imports)
        with (scratch / "log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    command.argv,
                    env=env,
                    cwd=scratch,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _ask(
        self, method: str, path: str, key: str | None = "", body: dict[str, Any] | None = None, timeout_s: float = 5.0
    ) -> tuple[int, bytes] | None:
        """`key`: "" is the shard's own, None none at all."""
        headers = {} if key is None else {"Authorization": f"Bearer {key or self.shard.key}"}
        connection = http.client.HTTPConnection(self.host, self.shard.port, timeout=timeout_s)
        try:
            headers["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def at(shard: ShardSpec, port: int, gang_port: int = 0) -> ShardSpec:
    gang = None if shard.gang is None else replace(shard.gang, port=gang_port)
    return replace(shard, port=port, gang=gang)
