"""Requests to route, always the same ones: groups that share a long beginning, sessions that grow turn by turn.

FROZEN: figures that were written down belong to this text. Another shape is another function, not a change here.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

SEED = 20261129
_WORDS = (
    *("river", "stone", "lamp", "orchard", "winter", "copper", "bridge", "paper", "engine", "harbour", "willow"),
    *("meadow", "signal", "market", "forest", "silver", "garden", "window", "letter", "mountain", "thread"),
    *("candle", "island", "valley", "anchor", "feather", "hollow", "timber", "morning", "cloud"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `at`: seconds from the start; `answer_tokens`: how long its answer may be."""

    at: float
    session: str
    group: int
    number: int
    messages: tuple[tuple[str, str], ...]
    answer_tokens: int

    def body(self, model: str, stream: bool = True) -> bytes:
        messages = [{"role": role, "content": text} for role, text in self.messages]
        fields = {"model": model, "messages": messages, "max_tokens": self.answer_tokens, "temperature": 0}
        return json.dumps({**fields, "stream": stream}).encode()


def turns(
    groups: int = 8,
    sessions: int = 6,
    length: int = 4,
    *,
    system_words: int = 220,
    said_words: int = 30,
    answer_tokens: int = 12,
    each_s: float = 0.1,
    seed: int = SEED,
) -> list[Turn]:
    """`groups` × `sessions` conversations of `length` turns, mixed, one every `each_s` seconds on average (as chance
    has it). A session's next turn repeats all that was said; the answers in it are drawn here, so that the requests
    do not depend on what an engine says."""
    draw = random.Random(seed)
    openings = [_said(draw, system_words) for _ in range(groups)]
    talks: list[list[tuple[tuple[str, str], ...]]] = []
    for group in range(groups):
        for _ in range(sessions):
            told: list[tuple[str, str]] = [("system", openings[group])]
            talk = []
            for _ in range(length):
                told.append(("user", _said(draw, said_words)))
                talk.append(tuple(told))
                told.append(("assistant", _said(draw, answer_tokens)))
            talks.append(talk)
    # The order: each conversation keeps its own, the rest is chance.
    order = [i for i, talk in enumerate(talks) for _ in talk]
    draw.shuffle(order)
    said = [0] * len(talks)
    found, at = [], 0.0
    for i in order:
        at += draw.expovariate(1 / each_s)
        number = said[i]
        said[i] += 1
        found.append(Turn(at, f"s{i}", i // sessions, number, talks[i][number], answer_tokens))
    return found


def lab(groups: int = 6, *, each_s: float = 0.4, seed: int = SEED) -> list[Turn]:
    """What fits into the tiny model's context, about 1 500 tokens at most: long beginnings, few words a turn."""
    return turns(groups, 3, 4, system_words=140, said_words=15, answer_tokens=8, each_s=each_s, seed=seed)


def _said(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(_WORDS) for _ in range(words))
