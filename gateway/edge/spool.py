"""The books of one edge process: append-only lines that outlive it. An intent is on disk before its request leaves.

A folder holds `<edge>.lock`, flocked for as long as the process lives, and `<edge>-<n>.jsonl` segments. Written
to the page cache, not synced: it survives a kill of the process, not of the machine (docs/operating.md).
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

from gateway.core.record import Intent, Settlement, encode

log = logging.getLogger(__name__)
SEGMENT_BYTES = 8 * 1024 * 1024


class SpoolFull(Exception):
    """The line could not be written: the request must not be served unaccounted."""


class Spool:
    """Intents are written at once, settlements by the end of the loop's turn."""

    def __init__(self, folder: Path, edge: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self.edge = folder, edge
        self._segment_bytes = segment_bytes
        making = folder / f".{edge}.making"
        self._lock = os.open(making, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        making.rename(folder / f"{edge}.lock")  # never there without being held: the shipper would take it for dead
        self._number = 0
        self._fd = -1
        self._size = 0
        self._waiting: list[bytes] = []
        self._scheduled = False
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self.failing = False
        """Whether the last write failed."""
        self.written = 0

    def schedule_with(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon

    def intend(self, intent: Intent) -> None:
        """On disk when this returns; raises `SpoolFull`."""
        before = len(self._waiting)
        self._waiting.append(encode(intent))
        try:
            self._write()
        except OSError as e:
            del self._waiting[before]
            self._say(e)
            raise SpoolFull(f"the request cannot be accounted for: {e.strerror}") from None

    def settle(self, settlement: Settlement) -> None:
        """Never lost while the process lives: what cannot be written now is tried again."""
        self._waiting.append(encode(settlement))
        if self._call_soon is None:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return
        try:
            self._write()
        except OSError as e:
            self._say(e)

    @property
    def waiting(self) -> int:
        """Lines that are not on disk yet."""
        return len(self._waiting)

    def close(self) -> None:
        """The last lines out, then the lock: from here on the edge counts as dead, and its books as closed."""
        self.flush()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        os.close(self._lock)

    def _write(self) -> None:
        if self._fd < 0 or self._size >= self._segment_bytes:
            self._next_segment()
        lines = b"".join(self._waiting)
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._fd, lines[written:] if written else lines)
        except OSError:
            if written:
                os.ftruncate(self._fd, self._size)  # half a line must not run into the next one
            raise
        self._size += written
        self.written += len(self._waiting)
        self._waiting.clear()
        self.failing = False

    def _next_segment(self) -> None:
        path = self.folder / f"{self.edge}-{self._number + 1:06d}.jsonl"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._number, self._fd, self._size = self._number + 1, fd, os.fstat(fd).st_size

    def _say(self, error: OSError) -> None:
        if not self.failing:
            log.error("the usage spool cannot be written (%s): requests are refused until it can", error.strerror)
        self.failing = True
