"""Reading the edges' spools: which lines are new, which requests are still open, which edges are gone.

Progress is kept beside the spool, in one file an edge, written after the rows are in: a crash in between ships
the same lines again, and the store takes each request once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.core.record import Intent, Settlement, decode

MOST_BYTES = 4 * 1024 * 1024
"""Read at once of one segment."""


class Progress(msgspec.Struct):
    """How far an edge's spool is shipped, and the intents whose settlement has not come."""

    segment: str = ""
    offset: int = 0
    open: dict[str, Intent] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class Batch:
    """What one look at an edge's spool found."""

    settled: list[tuple[Intent, Settlement]] = field(default_factory=list)
    abandoned: list[Intent] = field(default_factory=list)
    """Of a dead edge: never settled."""
    more: bool = False


class Journal:
    """One edge's spool, from the shipper's side."""

    def __init__(self, folder: Path, edge: str) -> None:
        self.folder, self.edge = folder, edge
        self._path = folder / f"{edge}.progress"
        self.progress = self._load()
        self._dead = False

    def read(self) -> Batch:
        """Lines that were not shipped yet. `progress` moves, and is kept by `commit`."""
        dead = _free(self.folder / f"{self.edge}.lock")  # asked first: a dead edge writes no more
        batch = Batch()
        for path in self._segments():
            if path.name != self.progress.segment:
                self.progress.segment, self.progress.offset = path.name, 0
            self._take(path, batch, last_words=dead)
            if batch.more:
                break
        if dead and not batch.more:
            batch.abandoned = list(self.progress.open.values())
            self.progress.open = {}
            self._dead = True
        return batch

    def commit(self) -> None:
        """The batch is in the store: remember it, and delete what is shipped."""
        if self._dead:
            for path in self.folder.glob(f"{self.edge}-*.jsonl"):
                path.unlink(missing_ok=True)
            self._path.unlink(missing_ok=True)
            (self.folder / f"{self.edge}.lock").unlink(missing_ok=True)
            return
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(self.progress))
        temporary.replace(self._path)
        for path in self._all_segments():
            if path.name < self.progress.segment:
                path.unlink(missing_ok=True)

    def backlog_bytes(self) -> int:
        """Of segments: written and not shipped."""
        return sum(p.stat().st_size for p in self._segments()) - self.progress.offset

    def _take(self, path: Path, batch: Batch, last_words: bool) -> None:
        with path.open("rb") as f:
            f.seek(self.progress.offset)
            data = f.read(MOST_BYTES)
        end = data.rfind(b"\n") + 1
        if last_words and end < len(data) < MOST_BYTES:
            end = len(data)  # a line that its edge did not live to end
        for line in data[:end].splitlines():
            match decode(line):
                case Intent() as intent:
                    self.progress.open[intent.id] = intent
                case Settlement() as settlement:
                    found = self.progress.open.pop(settlement.id, None)
                    if found is not None:
                        batch.settled.append((found, settlement))
        self.progress.offset += end
        batch.more = len(data) == MOST_BYTES

    def _all_segments(self) -> list[Path]:
        return sorted(self.folder.glob(f"{self.edge}-[0-9]*.jsonl"))

    def _segments(self) -> list[Path]:
        return [p for p in self._all_segments() if p.name >= self.progress.segment]

    def _load(self) -> Progress:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Progress)
        except FileNotFoundError:
            return Progress()
        except msgspec.MsgspecError:  # cut short by a full disk: ship from the beginning, the store takes each once
            return Progress()


def journals(folder: Path) -> list[Journal]:
    """One an edge that has a spool in `folder`."""
    return [Journal(folder, path.stem) for path in sorted(folder.glob("*.lock")) if path.name != SHIPPER]


SHIPPER = "shipper.lock"


@contextlib.contextmanager
def only_shipper(folder: Path) -> Iterator[bool]:
    """True for the one process that ships now."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(folder / SHIPPER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def _free(lock: Path) -> bool:
    """Whether the process that held it is gone."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)
