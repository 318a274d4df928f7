"""Processes as leases know them: named so that another on the same machine can tell whether one has died.

A name holds the kernel's boot, the process namespace, the number and the start: a number alone may be another's
tomorrow, and another container's today. Whoever cannot tell says that it lives.
"""

from __future__ import annotations

import functools
import os
import secrets
from pathlib import Path


@functools.cache
def _here() -> str:
    """This machine since its start, and this process namespace of it; empty where that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot.replace('-', '')[:16]}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def this_process(kind: str) -> str:
    """`kind@here/pid/start/random`: no two processes have the same."""
    pid = os.getpid()
    return f"{kind}@{_here()}/{pid}/{_start(pid) or 0}/{secrets.token_hex(4)}"


def is_dead(holder: str) -> bool:
    """True only of a process of this machine that has certainly ended."""
    try:
        here, pid, start, _ = holder.partition("@")[2].split("/")
        number, started = int(pid), int(start)
    except ValueError:
        return False
    if not here or here != _here() or number <= 0 or not started:
        return False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's: it lives
        pass
    now = _start(number)
    return now is not None and now != started


def _start(pid: int) -> int | None:
    """In ticks since the machine's start; a zombie's is 0: it does nothing any more. None: it cannot be told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
