"""What the events of a stream have in common: all of an event but one text. Pure.

Engines send a token as the same JSON again and again, with another text in it. Where an event was looked at and found
to be of no interest, the next one like it is too, if nothing but that text differs and the text is nothing but text:
then no quote ends it, no backslash hides its end, and no line ends in it.
"""

from __future__ import annotations

import re

from gateway.core.framing import LONGEST, SIZES

_TEXT = re.compile(rb'(?:content|text|reasoning|arguments)": ?"')
_ODD = re.compile(rb'["\n\r]|\\\Z')
"""What no text is that is nothing but text."""
_QUOTE, _LF, _CR, _BACKSLASH = b'"\n\r\\'
"""The same as numbers, which are looked for faster in short texts than patterns are."""
_NEVER = 1 << 60
"""Bytes: no event is as long."""
_TRIES = 8
"""Events that were of no use in vain, after which no more are tried: those of this stream differ elsewhere."""


class Mould:
    """Of one stream."""

    __slots__ = (
        "_cast_head",
        "_cast_tail",
        "_changes",
        "_first",
        "_framed_last",
        "_framed_tail",
        "_head",
        "_last",
        "_tail",
        "_tries",
    )

    def __init__(self) -> None:
        self._head = self._tail = self._cast_head = self._cast_tail = b""
        self._first = self._last = _NEVER
        self._framed_tail = b""
        self._framed_last = 0
        """Of an HTTP chunk: what stands behind its text, and how many bytes that are, negative."""
        self._changes = False
        self._tries = _TRIES

    def cast(self, event: bytes) -> bytes | None:
        """What becomes of `event`; None where it is not like the last one that was taken as a pattern."""
        first, last = self._first, len(event) - self._last
        if (
            first > last
            or not event.startswith(self._head)
            or not event.endswith(self._tail)
            or _ODD.search(event, first, last) is not None
        ):
            return None
        self._tries = _TRIES
        return self._cast_head + event[first:last] + self._cast_tail if self._changes else event

    def chunk(self, data: bytes) -> bytes | None:
        """`cast` of an event that is alone in an HTTP chunk, as `data` must be whole, in a chunk again."""
        size = len(data)
        if size > LONGEST:
            return None
        frame = SIZES[size]
        at = len(frame)
        first, last = self._first + at, self._framed_last + size
        if first > last or data[:at] != frame or data[at:first] != self._head or data[last:] != self._framed_tail:
            return None
        text = data[first:last]
        if _QUOTE in text or _LF in text or _CR in text or data[last - 1] == _BACKSLASH:
            return None
        self._tries = _TRIES
        if not self._changes:
            return data
        left = self._cast_head + text + self._cast_tail
        return b"%x\r\n%b\r\n" % (len(left), left)

    def take(self, event: bytes, became: bytes) -> None:
        """`event`, of which `became` was left, is the pattern from now on; outside its texts it has no more to say."""
        if not self._tries:
            return
        self._tries -= 1
        found, left = _TEXT.search(event), _TEXT.search(became)
        if found is None or left is None:
            return
        start, end = found.end(), event.find(b'"', found.end())
        if end < 0 or event[end - 1 : end] == b"\\":
            return
        self._head, self._tail = event[:start], event[end:]
        self._framed_tail, self._framed_last = self._tail + b"\r\n", end - len(event) - 2
        self._first, self._last = start, len(event) - end
        self._cast_head, self._cast_tail = became[: left.end()], became[left.end() + end - start :]
        self._changes = event != became
