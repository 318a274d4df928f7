"""What was saved: by an answer given again, and by a prompt's beginning that an engine had read before. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.usage import Usage
from llmgw.price import Price


@dataclass(frozen=True, slots=True)
class Saving:
    """`tokens` that no engine worked on. `cost`: what they would have cost more, in nano-units; None where nobody
    priced the model."""

    tokens: int
    cost: int | None


def answer(counted: Usage, price: Price | None) -> Saving:
    """All of it, at today's price. `counted`: what the model counted when it gave the answer."""
    prompt, completion = counted.prompt or 0, counted.completion or 0
    cost = price.of(prompt, completion, counted.cached or 0) if price is not None else None
    return Saving(prompt + completion, cost)


def prefix(counts: Usage, price: Price | None) -> Saving:
    """The difference between a prompt token's price and a cached one's."""
    prompt = counts.prompt or 0
    cached = min(counts.cached or 0, prompt)
    cost = price.of(prompt, 0) - price.of(prompt, 0, cached) if price is not None else None
    return Saving(cached, cost)


NOTHING = Saving(0, None)
"""Of a request that an engine worked on from beginning to end."""
