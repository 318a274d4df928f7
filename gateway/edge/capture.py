"""A copy of what goes out to a client: the blocks themselves, looked at when the answer is over."""

from __future__ import annotations


class Capture:
    """`over`: it was more than `most` bytes, and nothing is held of it."""

    __slots__ = ("_most", "blocks", "over", "size")

    def __init__(self, most: int) -> None:
        self.blocks: list[bytes] = []
        self._most, self.size = most, 0
        self.over = False

    def add(self, block: bytes) -> None:
        if self.over:
            return
        self.size += len(block)
        if self.size > self._most:
            self.over = True
            self.blocks.clear()
        else:
            self.blocks.append(block)
