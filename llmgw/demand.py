"""What the edges tell the control side of those who ask: one short-lived word an edge in Redis. Needs no Django.

A word lies under `KEY` and its edge's id, is written once a second beside the live figures, and expires: an edge that
is gone asks for nothing. Times in it are ages, for clocks of machines differ. The first request for a model that does
not run is told at once, and announced on `CHANNEL`.
"""

from __future__ import annotations

import msgspec

KEY = "llmgw:demand:"
CHANNEL = "llmgw:demand"
EDGES = "llmgw:edges"
"""The hash with a field for each edge: whose words to look for."""
EXPIRES_S = 5


class Asked(msgspec.Struct, array_like=True, frozen=True):
    """Of one model at one edge. Ages in seconds; None: nobody did, as far as this edge knows."""

    waiting: int = 0
    """Requests that wait for a replica, or for a place at one."""
    in_flight: int = 0
    """Requests that are being answered."""
    unserved_s: float | None = None
    """Since the first request that found no replica, while one of those is still hoped to come back."""
    asked_s: float | None = None
    """Since the last request; only of models that load on demand."""


class Word(msgspec.Struct, frozen=True):
    """One edge's."""

    models: dict[str, Asked] = {}
    leaving: dict[str, int] = {}
    """Replica → requests in flight there, of those that the edge knows to take no more: at 0 its card is free for this
    edge."""


_decoder = msgspec.json.Decoder(Word)


def encode(word: Word) -> bytes:
    return msgspec.json.encode(word)


def decode(data: bytes) -> Word:
    """Raises `msgspec.MsgspecError` for what another version wrote."""
    return _decoder.decode(data)


def add(one: Asked, other: Asked) -> Asked:
    """Of the same model at two edges: the oldest that is unserved, the newest ask."""
    return Asked(
        one.waiting + other.waiting,
        one.in_flight + other.in_flight,
        max((s for s in (one.unserved_s, other.unserved_s) if s is not None), default=None),
        min((s for s in (one.asked_s, other.asked_s) if s is not None), default=None),
    )
