"""What an edge tells the ledger: operations, and the batches in which they travel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

RESERVE, SETTLE, FORCE, DROP = 1, 2, 3, 4
Result = list[int]
"""Of a reservation, as `batch.lua` gives it."""


@dataclass(slots=True, eq=False)
class Operation:
    """`words`: as the script reads it, `(code, id, …)`."""

    words: tuple[str | bytes | int, ...]
    at: float = 0.0
    """The loop's time."""
    future: asyncio.Future[Result | None] | None = None
    """Of a reservation: its result; None where the ledger is away."""
    admitted: bytes | None = None
    """Of a reservation: the record that fitted."""

    @property
    def id(self) -> str:
        return str(self.words[1])

    @property
    def open(self) -> bool:
        """Somebody waits for it."""
        return self.future is not None and not self.future.done()

    def answer(self, result: Result) -> None:
        if result[0] > 0:
            record = self.words[2 + result[0]]
            assert isinstance(record, bytes)
            self.admitted = record
        if self.future is not None and not self.future.done():
            self.future.set_result(result)

    def again(self) -> Operation | None:
        """What repeats it on a server that has forgotten it."""
        if self.words[0] != RESERVE:
            return self
        return force(self.id, self.admitted) if self.admitted is not None else None


@dataclass(slots=True, eq=False)
class Batch:
    number: int
    operations: list[Operation] = field(default_factory=list)
    at: float = 0.0


def reserve(id: str, records: Sequence[bytes], at: float, future: asyncio.Future[Result | None]) -> Operation:
    return Operation((RESERVE, id, len(records), *records), at, future)


def settle(id: str, record: bytes, tokens: int, money: int, ms: int) -> Operation:
    return Operation((SETTLE, id, record, tokens, money, ms))


def force(id: str, record: bytes) -> Operation:
    return Operation((FORCE, id, record))


def drop(id: str) -> Operation:
    return Operation((DROP, id))
