"""Keeps processes running: starts them, starts again what dies, says so, ends them in order.

A process that dies starts again after a pause that doubles from 0.2 s to 10 s and is forgotten after a quiet
minute. Each runs in a session of its own and bears a marker in its environment, by which the next supervisor
finds what a killed one left behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llmgw.up.components import Component

MARKER = "LLMGW_UP"
_PAUSE_FIRST_S, _PAUSE_MOST_S, _QUIET_S = 0.2, 10.0, 60.0
_LOG_MOST_BYTES, _LOG_KEPT_BYTES, _LOGS_EVERY_S = 16 * 1024 * 1024, 4 * 1024 * 1024, 60.0


@dataclass(slots=True)
class _Running:
    component: Component
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause_s: float = 0.0
    due: float = 0.0
    restarts: int = 0


class Supervisor:
    """`tick()` at least a few times a second; `say` gets one sentence whenever something died or came back."""

    def __init__(
        self,
        home: Path,
        logs: Path,
        environment: dict[str, str],
        sockets: dict[str, socket.socket],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mark = mark(home)
        self._logs = logs
        self._environment = environment
        self._sockets = sockets
        self._say = say
        self._clock = clock
        self._logs_at = clock()
        self._running: dict[str, _Running] = {}

    def start(self, component: Component) -> None:
        one = self._running[component.name] = _Running(component)
        self._spawn(one)

    def pid(self, name: str) -> int | None:
        one = self._running.get(name)
        return one.process.pid if one and one.process and one.process.poll() is None else None

    def restarts(self) -> dict[str, int]:
        return {name: one.restarts for name, one in self._running.items()}

    def tick(self) -> None:
        """Notice the dead, start again what is due, keep logs short."""
        now = self._clock()
        if now - self._logs_at >= _LOGS_EVERY_S:
            self._logs_at = now
            for name in self._running:
                keep_short(self._logs / f"{name}.log")
        for one in self._running.values():
            if one.process is not None and (status := one.process.poll()) is not None:
                lived = now - one.started
                one.pause_s = (
                    _PAUSE_FIRST_S if lived > _QUIET_S else min(_PAUSE_MOST_S, one.pause_s * 2 or _PAUSE_FIRST_S)
                )
                one.due, one.process = now + one.pause_s, None
                self._say(
                    f"{one.component.name} {_ended(status)}; starting it again in {one.pause_s:g} s{self._hint(one)}"
                )
            elif one.process is None and now >= one.due:
                one.restarts += 1
                self._spawn(one)

    def end(self, name: str, grace_s: float | None = None) -> None:
        """SIGTERM, then SIGKILL to its whole group after its grace; returns once it is gone."""
        one = self._running.pop(name, None)
        if one is None or one.process is None:
            return
        process = one.process
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(one.component.grace_s if grace_s is None else grace_s)
        except subprocess.TimeoutExpired:
            self._say(f"{name} did not end by itself in {one.component.grace_s:g} s and was killed")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _spawn(self, one: _Running) -> None:
        component = one.component
        environment = {**self._environment, **component.env, MARKER: f"{self._mark}:{component.name}"}
        descriptors: list[int] = []
        if component.socket is not None:
            descriptors.append(self._sockets[component.socket].fileno())
            environment["LLMGW_LISTEN_FD"] = str(descriptors[0])
        path = self._logs / f"{component.name}.log"
        keep_short(path)
        with open(path, "ab", buffering=0) as log:
            one.process = subprocess.Popen(
                component.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=descriptors,
                start_new_session=True,
            )
        one.started = self._clock()

    def _hint(self, one: _Running) -> str:
        last = last_line(self._logs / f"{one.component.name}.log")
        return f" (its log ends: {last})" if last and one.pause_s > _PAUSE_FIRST_S else ""


def mark(home: Path) -> str:
    """What tells this home's processes from another's."""
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def leftovers(home: Path) -> Iterator[tuple[int, str]]:
    """(pid, component) of processes that a supervisor of this home left behind."""
    wanted = f"{MARKER}={mark(home)}:".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(wanted):
                    yield int(pid), variable[len(wanted) :].decode(errors="replace")


def end_leftovers(home: Path, say: Callable[[str], None], grace_s: float = 6.0) -> None:
    """End what a killed supervisor left: its Redis last, engines not at all (the agent finds them again)."""
    for last in (False, True):
        found = [(pid, name) for pid, name in leftovers(home) if (name == "redis") is last]
        if not found:
            continue
        say(f"ending what an earlier run left: {', '.join(sorted({name for _, name in found}))}")
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for pid, _ in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sign)
            deadline = time.monotonic() + grace_s
            while any(_alive(pid) for pid, _ in found) and time.monotonic() < deadline:
                time.sleep(0.02)


def last_line(path: Path) -> str:
    """The last line with words in a log, at most 200 characters; empty where there is none."""
    try:
        with open(path, "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - 4096))
            lines = [line.strip() for line in f.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""


def keep_short(path: Path) -> None:
    """Shortens a log that has grown too long where it stands: its writer appends, and goes on at the new end."""
    with contextlib.suppress(OSError):
        if path.stat().st_size <= _LOG_MOST_BYTES:
            return
        with open(path, "rb") as f:
            f.seek(-_LOG_KEPT_BYTES, os.SEEK_END)
            end = f.read(_LOG_KEPT_BYTES)
        with contextlib.suppress(OSError):  # a full disk: then the end is lost too
            path.with_suffix(".log.1").write_bytes(end)
        os.truncate(path, 0)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
