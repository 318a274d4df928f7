"""HTTP chunks that are read whole, as nearly all are: a chunk's length tells the line that it must begin with. Pure."""

from __future__ import annotations

LONGEST = 4102
"""Bytes of a chunk with its size and line ends, of those that are known here: tokens."""


def _sizes() -> list[bytes]:
    sizes = [b"\0"] * (LONGEST + 1)  # which no size begins with
    for length in range(1, 0x1000):
        size = b"%x\r\n" % length
        sizes[len(size) + length + 2] = size
    return sizes


SIZES = _sizes()
"""By the whole chunk's length: its first line, as those write it who use lower case and no leading zeros."""
