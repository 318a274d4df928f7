"""A head that comes again to the byte, but for the length of its body, is not parsed again.

A client says the same some fifteen lines with every request of its connection, and an engine answers everybody alike
(for as long as its `date` stays the same). A message is known only if all of it came in one piece.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

T = TypeVar("T")
OFTEN = 8
"""So many in a row that were not known; from then on only each `SELDOM`th is kept, for keeping them does not pay."""
SELDOM = 64
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)


class Again(Generic[T]):
    """The last head. `value`: what was read from it."""

    __slots__ = ("_after", "_before", "_unknown", "value")

    def __init__(self) -> None:
        self._before = self._after = b""
        self._unknown = 0
        self.value: T | None = None

    def length(self, data: bytes) -> int:
        """Of the body in `data`, where that is one whole message with the known head; else -1."""
        before = self._before
        if not before or not data.startswith(before):
            return -1
        end = data.find(b"\r", len(before))
        digits = data[len(before) : end]
        if not digits.isdigit() or len(digits) > 9 or not data.startswith(self._after, end):
            return -1
        length = int(digits)
        return length if end + len(self._after) + length == len(data) else -1

    def keep(self, data: bytes, length: int, value: T) -> None:
        """`data`, one message with a body of `length` bytes, was parsed to `value`."""
        self._unknown += 1
        if self._unknown > OFTEN and self._unknown % SELDOM:
            return
        size = len(data) - length
        said = _LENGTH.search(data, 0, size)
        if said is None or int(said[1]) != length or data.find(_END) + len(_END) != size:
            return
        self._before, self._after, self.value = data[: said.start(1)], data[said.end(1) : size], value

    def known(self) -> None:
        """It came again."""
        self._unknown = 0
