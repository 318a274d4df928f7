"""Which question that was answered before is as good as the same: by the angle between two embeddings. Pure.

Compared is the last message of a person, within one conversation: everything else that was sent must be equal.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gateway.core.request import CHAT
from gateway.core.reuse.asked import Asked, digest

MOST_CHARACTERS = 2000
"""A longer question is answered again only when it is the same."""
MOST_COMPARED = 4096
"""Of one conversation, the newest: 2 to 6 ms."""
_HEAD = 32
"""Coordinates that are compared first. A distance over some of them is never more than over all, so that most
questions need no more."""
_EACH_BYTES = 200


@dataclass(frozen=True, slots=True)
class Question:
    """`conversation` is the same for all that may answer one another."""

    conversation: bytes
    text: str


def question(asked: Asked, embedding_model: str) -> Question | None:
    """None where only the same request will do: no chat, not a person's text alone at its end, a tool's result, or
    anything but text, anywhere in it."""
    messages = asked.fields.get("messages")
    if asked.endpoint != CHAT or not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return None
    if any(m.get("role") in ("tool", "function") or _text(m.get("content")) is None for m in messages):
        return None
    last = messages[-1]
    text = _text(last.get("content"))
    if last.get("role") != "user" or not text or not text.strip() or len(text) > MOST_CHARACTERS:
        return None
    said = {**last, "content": ""}
    fields = {**asked.fields, "messages": [*messages[:-1], said]}
    return Question(digest(asked.endpoint, asked.project, asked.model, fields, embedding_model), text)


def _text(content: Any) -> str | None:
    """Of a message; None where it is not text alone."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    parts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    return "\n".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Vector:
    """Of length 1."""

    head: tuple[float, ...]
    tail: array[float]

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return 32 * len(self.head) + 4 * len(self.tail) + _EACH_BYTES


def vector(numbers: Sequence[float]) -> Vector | None:
    """None for what has no direction."""
    try:
        length = math.hypot(*numbers)
    except TypeError:
        return None
    if not numbers or not math.isfinite(length) or length == 0:
        return None
    unit = [n / length for n in numbers]
    return Vector(tuple(unit[:_HEAD]), array("f", unit[_HEAD:]))


class Index:
    """Vectors of the questions that were answered, by conversation."""

    def __init__(self) -> None:
        self._conversations: dict[bytes, dict[bytes, Vector]] = {}
        self._of: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, key: bytes, conversation: bytes, found: Vector) -> None:
        self.drop(key)
        self._of[key] = conversation
        self._conversations.setdefault(conversation, {})[key] = found

    def drop(self, key: bytes) -> None:
        conversation = self._of.pop(key, None)
        if conversation is None:
            return
        vectors = self._conversations[conversation]
        del vectors[key]
        if not vectors:
            del self._conversations[conversation]

    def nearest(self, conversation: bytes, asked: Vector, least: float) -> list[tuple[float, bytes]]:
        """Keys of those whose cosine similarity is at least `least`, the most alike first."""
        return sorted(self._within(conversation, asked, least), reverse=True)

    def _within(self, conversation: bytes, asked: Vector, least: float) -> Iterator[tuple[float, bytes]]:
        # of two vectors of length 1: distance² = 2 − 2 · cosine; the last digits are float32's
        most = math.sqrt(max(0.0, 2 - 2 * least)) + 1e-6
        head, tail = asked.head, tuple(asked.tail)
        vectors = self._conversations.get(conversation, {})
        for key in islice(reversed(vectors), MOST_COMPARED):
            other = vectors[key]
            if len(other.head) != len(head) or len(other.tail) != len(tail):
                continue
            near = math.dist(head, other.head)
            if near <= most and (whole := math.hypot(near, math.dist(tail, other.tail))) <= most:
                yield min(1.0, 1 - whole * whole / 2), key
