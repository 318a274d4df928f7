"""Which replica has read the beginning of a text already: an approximate radix tree over requests, bounded. Pure.

The text is the raw bytes of the request from its messages on (all of them, so that a conversation is found by its whole
past), cut at fixed places: every 128 bytes at first, then each block an eighth of what lies before it, so that a long
text costs some fifty hashes and what is matched is known to an eighth. Each block's name is the hash of itself and of
all that leads to it, and so one dict is the tree: a name stands for one path. Bytes and not tokens, because every
engine tokenizes differently and the gateway parses no more than it must; so a picture counts as its text.

What is remembered is what this edge sent where, not what an engine still holds: `Pace.trust` learns the difference.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gateway.core.value import Value

FIRST = 128
MOST_BYTES = 256 * 1024
"""Of a text; what lies behind is not looked at."""
MOST_BLOCKS = 65_536
"""Remembered, over all models of an edge: about 12 MB."""
_MOST_BITS = 256
_TOOLS = b'"tools"'
_STEP_BYTES = 16 * 1024
_TOOLS_BYTES = 512
"""Of a request's tools, by which they are known."""


def _ends() -> tuple[int, ...]:
    ends, at = [], 0
    while at < MOST_BYTES:
        at += max(FIRST, at // 8)
        ends.append(min(at, MOST_BYTES))
    return tuple(ends)


_ENDS = _ends()


class Text(Value, frozen=True):
    """A request's text. `names`: of each whole block, shortest path first."""

    names: tuple[int, ...] = ()
    size: int = 0
    """Bytes, at most MOST_BYTES."""


NOTHING = Text()


def read(body: bytes, model: str) -> Text:
    """The text of the request in `body`. Tools come first in an engine's prompt wherever they lie in the body: other
    tools are another text."""
    start = body.find(b'"messages"')
    if start < 0:
        start = max(body.find(b'"prompt"'), body.find(b'"input"'), 0)
    size = min(len(body) - start, MOST_BYTES)
    tools = body.find(_TOOLS, 0, MOST_BYTES) if len(body) <= _STEP_BYTES else _tools(body)
    named = b""
    if tools >= 0:
        named = body[tools : min(tools + _TOOLS_BYTES, start if tools < start else len(body))]
    name = hash((model, named))
    names = []
    at = start
    for end in _ENDS:
        if end > size:
            break
        name = hash((name, body[at : start + end]))
        names.append(name)
        at = start + end
    return Text(tuple(names), size)


def _tools(body: bytes) -> int:
    """Where they begin, or -1. The base64 of a picture has no quote, and is passed over in a twentieth of the time."""
    most = min(len(body), MOST_BYTES)
    for at in range(0, most, _STEP_BYTES):
        over = min(at + _STEP_BYTES, most)
        quote = body.find(b'"', at, over)
        if quote >= 0 and (found := body.find(_TOOLS, quote, min(over + len(_TOOLS) - 1, most))) >= 0:
            return found
    return -1


class Prefixes:
    """Paths and the replicas that were sent them. One per edge: a model's name begins each path."""

    def __init__(self, most: int = MOST_BLOCKS) -> None:
        self._most = most
        self._blocks: OrderedDict[int, int] = OrderedDict()
        """Name → bits of replicas; the least recently used first, and of one path the deepest first."""
        self._bits: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def bit(self, replica: str) -> int:
        """The bit that stands for `replica`."""
        bit = self._bits.get(replica)
        if bit is None:
            if self._next >= _MOST_BITS:  # replicas came and went for long: begin anew rather than grow
                self._blocks.clear()
                self._bits.clear()
                self._next = 0
            bit = self._bits[replica] = 1 << self._next
            self._next += 1
        return bit

    def forget(self, replica: str) -> None:
        """It is gone, or began anew: what it had read is lost."""
        self._bits.pop(replica, None)

    def match(self, text: Text, bits: Sequence[int]) -> list[int]:
        """How many bytes of `text` each replica of `bits` has read."""
        found = [0] * len(bits)
        asked = 0
        for bit in bits:
            asked |= bit
        blocks, left, end = self._blocks, asked, 0
        for name, here in zip(text.names, _ENDS, strict=False):
            holders = blocks.get(name, 0) & left
            if holders != left:
                if end:
                    lost = left ^ holders
                    for i, bit in enumerate(bits):
                        if bit & lost:
                            found[i] = end
                if not holders:
                    return found
                left = holders
            end = here
        for i, bit in enumerate(bits):
            if bit & left:
                found[i] = end
        return found

    def add(self, text: Text, bit: int) -> None:
        """`text` is on its way to the replica of `bit`."""
        blocks = self._blocks
        touch, get = blocks.move_to_end, blocks.get
        for name in reversed(text.names):
            blocks[name] = get(name, 0) | bit
            touch(name)
        while len(blocks) > self._most:
            blocks.popitem(last=False)
