"""One `up` a home: a lock that dies with its process and says who holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmgw.cluster.errors import Conflict


@contextmanager
def held(run_dir: Path) -> Iterator[None]:
    """Hold the home for this process; `Conflict` when another `up` runs on it."""
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(run_dir / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                "already_up",
                f"llmgw already runs from this folder (pid {holder(run_dir)}); end it with Ctrl-C there, or:",
                "llmgw down",
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        yield
    finally:
        os.close(fd)


def holder(run_dir: Path) -> int | None:
    """The pid of the `up` that holds this home; None when none does."""
    try:
        fd = os.open(run_dir / "up.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(fd, 20, 0) or 0) or None
    finally:
        os.close(fd)
    return None
