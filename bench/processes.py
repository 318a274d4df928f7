"""Processes on a core of their own, and what Linux says that they cost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cores:
    """`proxy` is the measured process's alone; load generator, mock engine and Redis share `load`."""

    proxy: int
    load: int


def cores() -> Cores | None:
    """Two cores of those that we may use; None where there is one."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[0], allowed[1]) if len(allowed) > 1 else None


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """What is started within inherits this core, with all its threads. None: any."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def start(
    argv: Sequence[str | Path],
    core: int | None,
    *,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    with on_core(core):
        return subprocess.Popen(
            [str(a) for a in argv], env=env, stdout=stdout, stderr=stderr, pass_fds=tuple(pass_fds), cwd=cwd
        )


def end(process: subprocess.Popen[bytes], grace_s: float = 6.0) -> None:
    """SIGTERM, and SIGKILL when that was not enough."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def memory_kb(pid: int) -> int:
    """Resident memory now."""
    return _status(pid, "VmRSS")


def peak_kb(pid: int) -> int:
    """The most resident memory since `forget_peak`."""
    return _status(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has no {name}: it has ended")


def busy_s(which: Cores) -> float:
    """What everybody together, and the host under us, took of the two cores since boot."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *values = line.split()
        if name in (f"cpu{which.proxy}", f"cpu{which.load}"):
            user, nice, system, *_, steal = (int(v) for v in values[:8])
            ticks += user + nice + system + steal
    return ticks * TICK_S


def settle(pid: int, limit_s: float = 4.0) -> None:
    """Until a process has finished what the last cell left it with."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = cpu_s(pid)
        time.sleep(0.15)
        if cpu_s(pid) - before <= 2 * TICK_S:
            return


def wait_for_quiet(which: Cores, share: float, limit_s: float = 2.0) -> None:
    """Until others leave both cores alone for a moment, or the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before, at = busy_s(which), time.monotonic()
        time.sleep(0.25)
        if (busy_s(which) - before) / (time.monotonic() - at) / 2 <= share:
            return
