"""The real script, told the time by a test."""

from __future__ import annotations

from typing import Any

import redis

from gateway.core.ledger import keys
from gateway.core.ledger.account import Record, pack
from gateway.edge.ledger.ledger import BATCH

WINDOW_MS, LEASE_MS = 60_000, 10_000


class Script:
    """One edge's view of it; every call is a batch of one operation, in order."""

    def __init__(self, store: redis.Redis, edge: str = "e1", window_ms: int = WINDOW_MS) -> None:
        self.store, self.edge, self.window_ms = store, edge, window_ms
        self._number = 0

    def batch(self, now: int, *operations: tuple[Any, ...], look: bool = False) -> list[Any]:
        before, self._number = self._number, self._number + 1
        words = [word for operation in operations for word in operation]
        head = (self.edge, 1, before, self._number, now, self.window_ms, LEASE_MS, int(look), *words)
        answer = self.store.eval(BATCH, 0, *head)
        assert answer[0] == b"ok", answer
        return answer[2:]

    def reserve(self, id: str, record: Record, now: int, *others: Record) -> list[int]:
        found: list[int] = self.batch(now, (1, id, 1 + len(others), pack(record), *map(pack, others)))[0]
        return found

    def force(self, id: str, record: Record, now: int) -> None:
        self.batch(now, (3, id, pack(record)))

    def settle(self, id: str, record: Record, tokens: int, money: int, ms: int, now: int) -> None:
        self.batch(now, (2, id, pack(record), tokens, money, ms))

    def give_back(self, id: str, now: int) -> None:
        self.batch(now, (4, id))

    def purse(self, name: str, period: str) -> tuple[int, int]:
        """Spent and held."""
        spent, held = self.store.hmget(keys.purse(name, period), "s", "h")
        return int(spent or 0), int(held or 0)


def seed(store: redis.Redis, name: str, period: str, spent: int = 0) -> None:
    store.hset(keys.purse(name, period), mapping={"s": spent, "k": 1})
