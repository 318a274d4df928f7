"""How a llama.cpp server keeps what it has read: its slots, one for each request at a time, and its host cache. Pure.

A new prompt goes to the free slot that shares most with it, if that is more than `similarity` of the prompt
(`--slot-prompt-similarity`), and overwrites what else lay there; it is put into the host cache before only where more
than half of it would go. Otherwise it goes to the slot that was not used for longest: what lay there is put into the
host cache, and the best of the host cache is taken out. At each start of an answer all idle slots are put into the host
cache too. Written from what the engine's log says; a test compares it with a real one, request by request.
"""

from __future__ import annotations

import json

SIMILARITY = 0.1
"""llama.cpp's own."""
_OVERWRITTEN = 0.5
"""A slot of which less is kept is put into the host cache first."""
_WORTH_TAKING = 0.25
"""Of a prompt in the host cache so much must be of use."""
_ANSWER = "\0" * 7


def prompt(body: bytes) -> str:
    """A sign for each sign, as the tiny model reads it, and one for each mark of its template."""
    messages = json.loads(body)["messages"]
    return "\x02" + "".join(f"{m['role'][0].upper()}{m['content']}\x03" for m in messages) + "A"


def common(one: str, other: str) -> int:
    """Signs from the start that are the same."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


class Slots:
    """`host`: whether there is a host cache; its 8 GiB are never full here."""

    def __init__(self, places: int, similarity: float = SIMILARITY, host: bool = True) -> None:
        self._similarity, self._host = similarity, host
        self._texts = [""] * places
        self._busy = [False] * places
        self._used = [-1.0] * places
        self._kept: list[str] = []

    def take(self, text: str) -> tuple[int, int]:
        """The slot that reads `text`, and how much of it was there already. One must be free."""
        slot, shared = self._alike(text)
        if slot < 0:
            free = [i for i, busy in enumerate(self._busy) if not busy]
            slot = min(reversed(free), key=lambda i: self._used[i])
            self._change(slot, text)
        elif shared < _OVERWRITTEN * len(self._texts[slot]):
            self._change(slot, text)
        cached = min(common(self._texts[slot], text), len(text) - 1)
        self._texts[slot] = text
        self._busy[slot] = True
        for i, busy in enumerate(self._busy):
            if not busy:
                self._save(i)
        return slot, cached

    def give_back(self, slot: int, now: float) -> None:
        """Its answer is over, and lies behind its prompt: no next prompt goes on with just that."""
        self._busy[slot], self._used[slot] = False, now
        self._texts[slot] += _ANSWER

    def _alike(self, text: str) -> tuple[int, int]:
        best, most = -1, 0
        for i, there in enumerate(self._texts):
            if not self._busy[i]:
                shared = common(there, text)
                if shared > most and shared > self._similarity * len(text):
                    best, most = i, shared
        return best, most

    def _change(self, slot: int, text: str) -> None:
        if not self._host:
            return
        self._save(slot)
        there = self._texts[slot]
        most = common(there, text)
        kept, found = most / len(there) if there else -1.0, -1
        for i, other in enumerate(self._kept):
            shared = common(other, text)
            if shared / len(other) >= _WORTH_TAKING and shared / len(other) > kept and shared > most:
                kept, most, found = shared / len(other), shared, i
        if found >= 0:
            self._texts[slot] = self._kept.pop(found)

    def _save(self, slot: int) -> None:
        text = self._texts[slot]
        if text and self._host and not any(other.startswith(text) for other in self._kept):
            self._kept = [other for other in self._kept if not text.startswith(other)]
            self._kept.append(text)
