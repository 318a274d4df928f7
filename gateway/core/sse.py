"""Server-sent events as bytes: whole events out of reads that may be cut anywhere, unchanged. Pure.

Nothing is decoded here: a UTF-8 character may be cut in two by the network, never by us, since only whole events
leave the reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.core.value import Value

MOST_BYTES = 16 * 1024 * 1024
"""Of one event. A stream with a longer one is ended with an error."""

_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
_END = re.compile(rb"\n\n|\n\r\n|\r\r")


class TooLong(ValueError):
    """An event passed the limit."""


class Event(Value, frozen=True):
    """`data` is the data lines joined by newlines; None where the event is comments only."""

    data: bytes | None
    name: bytes = b""


class Reader:
    """Feeds on reads, returns the whole events among them, and keeps the rest for the next read."""

    __slots__ = ("_limit", "_size", "_tail", "kept")

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._size = 0
        self._tail = b""
        self.kept: list[bytes] = []
        """The pieces of an event whose end has not come."""
        self._limit = limit

    def feed(self, data: bytes) -> bytes:
        """The bytes of all events that are now whole, empty when there are none; raises `TooLong`."""
        if not self.kept and data.endswith(b"\n\n"):
            return data
        window = self._tail + data
        cut = max([at + len(end) for end in _ENDS if (at := window.rfind(end)) >= 0], default=0) - len(self._tail)
        if cut <= 0:
            self._keep(data)
            return b""
        whole = b"".join([*self.kept, data[:cut]]) if self.kept else data[:cut]
        self.kept, self._size, self._tail = [], 0, b""
        if cut < len(data):
            self._keep(data[cut:])
        return whole

    @property
    def rest(self) -> bytes:
        """What is left of an event whose end has not come."""
        return b"".join(self.kept)

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            raise TooLong(f"one event of the stream is longer than {self._limit} bytes")
        self.kept.append(data)
        self._tail = (self._tail + data)[-3:]


def split(block: bytes) -> list[bytes]:
    """Whole events, each with the blank line that ends it: joined again they are `block`."""
    if b"\r" not in block:
        events = [e + b"\n\n" for e in block.split(b"\n\n")]
        last = events.pop()[:-2]
        return [*events, last] if last else events
    found, start = [], 0
    for end in _END.finditer(block):
        found.append(block[start : end.end()])
        start = end.end()
    if start < len(block):
        found.append(block[start:])
    return found


def end_of_first(block: bytes, start: int) -> int:
    """Where the event that begins at `start` ends, its blank line included."""
    found = _END.search(block, start)
    return found.end() if found is not None else len(block)


def parse(raw: bytes) -> Event:
    """What one event says."""
    if raw.startswith(b"data: ") and raw.find(b"\n") >= len(raw) - 2:
        return Event(raw[6:].rstrip(b"\r\n"))
    data: list[bytes] = []
    name = b""
    for line in _lines(raw):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return Event(b"\n".join(data) if data else None, name)


def _lines(raw: bytes) -> Iterator[bytes]:
    plain = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return (line for line in plain.split(b"\n") if line)
