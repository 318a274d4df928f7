"""`llmgw up`: a whole llmgw on this machine, from nothing to a streamed answer, kept running until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import connections

from llmgw.cluster.errors import Conflict, Refusal
from llmgw.machine import Machine
from llmgw.up import ask, components, lock, prepare, sockets, status
from llmgw.up import redis as redis_server
from llmgw.up.supervisor import Supervisor, end_leftovers, last_line
from llmgw.up.terminal import Teller, bar

QUESTIONS = {prepare.TINY: "count to 12"}
_PATIENCE_S = 120.0
"""How long the model may go without any progress before the first answer."""
_LATE_S = 3.0
"""When what a first answer does not need is started at the latest."""


class Stopped(Exception):
    """Ctrl-C or SIGTERM came."""


class Up:
    """One run. `run` returns the exit status."""

    def __init__(self, machine: Machine, starter: str, once: bool, teller: Teller, node: bool = True) -> None:
        self._machine = machine
        self._node = node
        self._starter = starter
        self._once = once
        self._teller = teller
        self._stopping = False
        self._late: list[components.Component] = []
        self._late_at = 0.0
        self._times: list[tuple[str, float]] = []
        self._began = time.monotonic()

    def run(self) -> int:
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, self._stop)
        self._say_root()
        prepare.folders(self._machine)
        with lock.held(self._machine.run_dir):
            end_leftovers(self._machine.home, self._teller.say)
            with self._listening() as bound:
                supervisor = self._supervisor(bound)
                try:
                    return self._serve(supervisor)
                except Stopped:
                    return 0 if not self._once else 1
                except Refusal as e:
                    self._teller.say(f"llmgw: {e.reason.sentence}")
                    return e.exit_code
                finally:
                    self._end(supervisor)

    def _serve(self, supervisor: Supervisor) -> int:
        prepared = self._prepare(supervisor)
        application = [c for c in components.application(self._machine) if self._node or c.name != "agent"]
        self._late = [c for c in application if c.late]
        self._late_at = time.monotonic() + _LATE_S
        for component in application:
            if not component.late:
                supervisor.start(component)
        self._mark("processes started")
        if prepared.model:
            self._first_answer(supervisor, prepared)
        elif self._node:
            self._teller.say("no model is served; add one with: llmgw model add -f FILE")
        self._print_how_to(prepared)
        if self._once:
            return 0
        self._start_late(supervisor)
        self._stay(supervisor)
        return 0

    def _first_answer(self, supervisor: Supervisor, prepared: prepare.Prepared) -> None:
        """One model that cannot answer ends a run that was for the answer, and no other: the rest is up."""
        try:
            self._await_serving(supervisor, prepared.model)
            self._answer(supervisor, prepared, QUESTIONS.get(prepared.model, "Say hello in one sentence."))
        except Conflict as e:
            if self._once:
                raise
            self._teller.say(f"llmgw: {e.reason.sentence}\n  try: {e.reason.command or 'llmgw replica list'}")

    def _prepare(self, supervisor: Supervisor) -> prepare.Prepared:
        if not self._machine.redis:
            binary = redis_server.binary()
            if binary is None:
                raise Conflict(
                    "no_redis",
                    "no Redis server was found; on Debian or Ubuntu: sudo apt-get install redis-server",
                )
            supervisor.start(components.redis_server(self._machine, binary))
        self._await_redis(supervisor)
        self._mark("Redis up")
        prepared = prepare.store(self._machine, self._starter, self._node)
        connections.close_all()
        self._mark("store ready")
        return prepared

    def _await_redis(self, supervisor: Supervisor) -> None:
        client = redis.Redis.from_url(self._machine.redis_url)
        deadline = time.monotonic() + 30
        while True:
            try:
                client.ping()
                return
            except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError, OSError) as e:
                if time.monotonic() > deadline:
                    tail = last_line(self._machine.logs_dir / "redis.log")
                    raise Conflict("no_redis", f"Redis did not answer in 30 s: {tail or e}") from None
            self._tick(supervisor, 0.02)

    def _await_serving(self, supervisor: Supervisor, model: str) -> None:
        """Until a replica of `model` is ready; says what it waits for, with a bar while weights come in."""
        quiet_since, seen = time.monotonic(), ""
        while True:
            found = status.of_model(model)
            if found.ready:
                self._mark("engine ready")
                return
            if found.parked:
                raise Conflict(
                    "parked", f"{model} does not start: {found.sentence}", f"llmgw explain-placement {model}"
                )
            line = f"{model}: {found.sentence}"
            if found.progress is not None:
                line += f" {bar(found.progress)}"
            if line != seen:
                quiet_since, seen = time.monotonic(), line
            if time.monotonic() - quiet_since > _PATIENCE_S:
                raise Conflict(
                    "not_serving",
                    f"{model} has made no progress for {_PATIENCE_S:.0f} s: {found.sentence}",
                    f"llmgw explain-placement {model}",
                )
            self._teller.show(line, keep=found.progress is None)
            self._tick(supervisor, 0.1)

    def _answer(self, supervisor: Supervisor, prepared: prepare.Prepared, question: str) -> None:
        """The streamed answer, printed as it comes."""
        deadline = time.monotonic() + 60
        while True:
            answer = ""
            try:
                for piece in ask.streamed(self._machine, prepared.model, question, prepared.person, prepared.project):
                    if not answer:
                        self._mark("first token")
                        self._teller.say(f"\n{prepared.model} ← {question}")
                        self._teller.write(f"{prepared.model} → ")
                    answer += piece
                    self._teller.write(piece)
                if answer:
                    self._teller.write("\n")
                    return
                reason = "the answer was empty"
            except ask.NotYet as e:
                reason = str(e)
            if answer or time.monotonic() > deadline:
                raise Conflict("no_answer", f"asking {prepared.model} failed: {reason}")
            self._teller.show(f"{prepared.model}: {reason}")
            self._tick(supervisor, 0.1)

    def _print_how_to(self, prepared: prepare.Prepared) -> None:
        say, url = self._teller.say, self._machine.portal_url
        spent = ", ".join(f"{name} {at:.1f} s" for name, at in self._times)
        say(f"\nup after {self._times[-1][1]:.1f} s ({spent})\n")
        say(f"  portal    {url}")
        say(f"  sign in   {prepared.email}" + (f"   password {prepared.password}" if prepared.password else ""))
        if prepared.key:
            say(f"  key       {prepared.key}")
            say("            (the password and the key are shown this once and kept only as hashes)")
        else:
            say("            (shown at the first start; new ones: llmgw user reset-password, llmgw key create)")
        say(f"\n  curl {url}/v1/chat/completions \\")
        say(f'    -H "Authorization: Bearer {prepared.key or "$LLMGW_API_KEY"}" \\')
        say('    -H "Content-Type: application/json" \\')
        body = f'{{"model": "{prepared.model or "MODEL"}", "messages": [{{"role": "user", "content": "3+4=?"}}]}}'
        say(f"    -d '{body}'\n")

    def _stay(self, supervisor: Supervisor) -> None:
        self._teller.say("Ctrl-C ends everything in order.")
        shown = 0.0
        while True:
            self._tick(supervisor, 0.1)
            if time.monotonic() - shown >= 1:
                shown = time.monotonic()
                self._teller.show(status.line())

    def _tick(self, supervisor: Supervisor, pause_s: float) -> None:
        supervisor.tick()
        if self._late and time.monotonic() >= self._late_at:
            self._start_late(supervisor)
        if self._stopping:
            raise Stopped
        time.sleep(pause_s)
        if self._stopping:
            raise Stopped

    def _start_late(self, supervisor: Supervisor) -> None:
        for component in self._late:
            supervisor.start(component)
        self._late = []

    def _stop(self, sign: int, frame: Any) -> None:
        self._stopping = True

    def _end(self, supervisor: Supervisor) -> None:
        self._teller.say("ending…")
        for name in components.ENDING:
            supervisor.end(name)
            if name == "agent" and self._machine.agent_dir.is_dir():
                self._end_engines()
        self._teller.say("ended.")

    def _end_engines(self) -> None:
        """In a session of its own, so that another Ctrl-C does not interrupt it."""
        command = [sys.executable, "-m", "agent.node.main", "stop-engines", "--home", str(self._machine.agent_dir)]
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(command, stdin=quiet, stdout=quiet, timeout=60, check=False, start_new_session=True)
        except subprocess.TimeoutExpired:
            self._teller.say("an engine has not ended in 60 s and goes on; the next start finds it again")

    @contextmanager
    def _listening(self) -> Iterator[dict[str, Any]]:
        machine = self._machine
        bound = sockets.bind_all(
            [
                sockets.Wanted("edge", machine.host, machine.port, "PORT"),
                sockets.Wanted("link", machine.host, machine.link_port, "LINK_PORT"),
                sockets.Wanted("metrics", machine.host, machine.metrics_port, "METRICS_PORT"),
            ]
        )
        self._machine = settings.MACHINE = replace(
            machine,
            port=bound["edge"].getsockname()[1],
            link_port=bound["link"].getsockname()[1],
            metrics_port=bound["metrics"].getsockname()[1],
        )
        bound["web"] = sockets.bind_unix(machine.web_socket)
        try:
            yield bound
        finally:
            for sock in bound.values():
                sock.close()
            machine.web_socket.unlink(missing_ok=True)

    def _supervisor(self, bound: dict[str, Any]) -> Supervisor:
        machine = self._machine
        environment = {
            **os.environ,
            "LLMGW_HOME": str(machine.home),
            "PORT": str(machine.port),
            "LINK_PORT": str(machine.link_port),
            "METRICS_PORT": str(machine.metrics_port),
            "PYTHONUNBUFFERED": "1",
        }
        root = str(Path(settings.BASE_DIR))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        return Supervisor(machine.home, machine.logs_dir, environment, bound, self._teller.say)

    def _say_root(self) -> None:
        if os.getuid() == 0:
            self._teller.say(
                "running as root: engines run as root too (an agent installed as a service has its own user)"
            )

    def _mark(self, name: str) -> None:
        self._times.append((name, time.monotonic() - self._began))
