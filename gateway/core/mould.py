"""What the events of a stream have in common: all of an event but one text. Pure.

Engines send a token as the same JSON again and again, with another text in it. Where an event was looked at and found
to be of no interest, the next one like it is too, if nothing but that text differs and the text is nothing but text:
then no quote ends it, no backslash hides its end, and no line ends in it.
"""

from __future__ import annotations

import re

_TEXT = re.compile(rb'(?:content|text|reasoning|arguments)": ?"')
_TRIES = 8
"""Events that were of no use in vain, after which no more are tried: those of this stream differ elsewhere."""


class Mould:
    """Of one stream."""

    __slots__ = ("_cast_head", "_cast_tail", "_changes", "_first", "_head", "_last", "_least", "_tail", "_tries")

    def __init__(self) -> None:
        self._head = self._tail = self._cast_head = self._cast_tail = b""  # which no first byte is
        self._first = self._last = 1
        self._least = 2
        self._changes = False
        self._tries = _TRIES

    def cast(self, event: bytes) -> bytes | None:
        """What becomes of `event`; None where it is not like the last one that was taken as a pattern."""
        if len(event) < self._least or event[: self._first] != self._head or event[-self._last :] != self._tail:
            return None
        text = event[self._first : -self._last]
        if b'"' in text or b"\n" in text or b"\r" in text or text[-1:] == b"\\":
            return None
        self._tries = _TRIES
        return self._cast_head + text + self._cast_tail if self._changes else event

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
        self._first, self._last, self._least = start, len(event) - end, len(event) - end + start
        self._cast_head, self._cast_tail = became[: left.end()], became[left.end() + end - start :]
        self._changes = event != became
