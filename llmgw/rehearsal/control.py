"""The rehearsal's own control plane: `llmgw up` on the rehearsal's home, without a node of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from django.conf import settings as django_settings

from llmgw.cluster.errors import Conflict
from llmgw.machine import Machine
from llmgw.up.supervisor import end_leftovers, leftovers

_UP_S = 90.0


class ControlPlane:
    """`start` returns once it serves; `kill` leaves nothing of the named components, at once."""

    def __init__(self, machine: Machine, say: Callable[[str], None]) -> None:
        self._machine, self._say = machine, say
        self._process: subprocess.Popen[bytes] | None = None
        self._log = machine.logs_dir / "up.log"

    def start(self, still: Callable[[], None] = lambda: None) -> None:
        """`still` is called while it is waited for; what it raises ends the wait."""
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "llmgw.settings",
            "LLMGW_HOME": str(self._machine.home),
            "PORT": str(self._machine.port),
            "LINK_PORT": str(self._machine.link_port),
            "METRICS_PORT": str(self._machine.metrics_port),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(django_settings.BASE_DIR), os.environ.get("PYTHONPATH")))),
        }
        descriptor = os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "django", "up", "--without-node"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        deadline = time.monotonic() + _UP_S
        while "Ctrl-C ends everything" not in (text := self._log.read_text(errors="replace")):
            still()
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = [line for line in text.splitlines() if line.strip()][-3:]
                raise Conflict("no_control_plane", f"the rehearsal's control plane did not come up: {' / '.join(said)}")
            time.sleep(0.1)

    def pids(self, components: Collection[str] = ()) -> dict[int, str]:
        return {p: n for p, n in leftovers(self._machine.home) if not components or n in components}

    def kill(self, components: Collection[str]) -> None:
        """kill -9; `up` starts them again."""
        for pid in self.pids(components):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """kill -9 of `up` and of all that it started but Redis, which has its own fault."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for pid, name in self.pids().items():
            if name != "redis":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(40)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None
        end_leftovers(self._machine.home, lambda sentence: None)


def cpu_and_memory(pids: Collection[int]) -> tuple[float, int]:
    """(seconds of CPU so far, resident bytes) of processes, by /proc."""
    ticks, pages = 0, 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
