"""The answers that one process holds: those used longest ago are dropped first, by bytes. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.core.snapshot import Reuse
from gateway.core.usage import Usage

OVERHEAD_BYTES = 600
"""An entry beside its body: its key in two tables, itself."""
SWEPT_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Entry:
    """`body` is the whole answer. `kept_at`: Unix seconds. `further_bytes`: what else is held with it."""

    project: str
    model: str
    body: bytes
    kept_at: float
    usage: Usage
    further_bytes: int = 0

    @property
    def size(self) -> int:
        return len(self.body) + self.further_bytes + OVERHEAD_BYTES

    def fresh(self, reuse: Reuse | None, now: float) -> bool:
        """By what the project says now, not by what it said when the answer was kept."""
        return reuse is not None and now - self.kept_at <= reuse.ttl_s and self.kept_at >= reuse.since


class Store:
    """`forgotten` is told the key of each entry that goes."""

    def __init__(self, most_bytes: int, forgotten: Callable[[bytes], None] = lambda key: None) -> None:
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._projects: dict[str, dict[bytes, None]] = {}
        """Keys in the order of their keeping, the oldest first."""
        self._forgotten = forgotten
        self._most = most_bytes
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes, reuse: Reuse, now: float) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not entry.fresh(reuse, now):
            self.drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, entry: Entry) -> bool:
        """Whether it is held: one that is larger than the whole store is not."""
        self.drop(key)
        if entry.size > self._most:
            return False
        self._entries[key] = entry
        self._projects.setdefault(entry.project, {})[key] = None
        self.bytes += entry.size
        self.limit(self._most)
        return True

    def drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.bytes -= entry.size
        keys = self._projects[entry.project]
        del keys[key]
        if not keys:
            del self._projects[entry.project]
        self._forgotten(key)

    def limit(self, most_bytes: int) -> None:
        self._most = most_bytes
        while self.bytes > most_bytes:
            self.drop(next(iter(self._entries)))

    def sweep(self, reuse_of: Callable[[str], Reuse | None], now: float) -> None:
        """Drop what is no longer fresh, a part of it at a time, so that nobody waits for it."""
        for key in list(self._stale(reuse_of, now)):
            self.drop(key)

    def _stale(self, reuse_of: Callable[[str], Reuse | None], now: float) -> Iterator[bytes]:
        left = SWEPT_AT_ONCE
        for project, keys in self._projects.items():
            reuse = reuse_of(project)
            for key in keys:
                if self._entries[key].fresh(reuse, now):
                    break  # what comes after it was kept later
                if left == 0:
                    return
                left -= 1
                yield key
