"""What an answer costs, in whole numbers. Pure.

Prices are written in micro-units per 1 000 tokens (2500 = 0.0025 of the currency's unit), which is the same number as
nano-units per token; amounts are nano-units (10⁻⁹ of the unit). A sum stays exact in a double below 2⁵³, nine million
units, which is how Redis keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

NANO = 1_000_000_000
MICRO = 1_000


@dataclass(frozen=True, slots=True)
class Price:
    """Micro-units per 1 000 tokens, per picture, per mesh. `cached` None: cached prompt tokens cost what others do."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None
    image: int = 0
    mesh: int = 0

    def of(self, prompt: int, completion: int, cached: int = 0, images: int = 0, meshes: int = 0) -> int:
        """In nano-units. `cached` counts those of the `prompt` tokens that were read from a cache."""
        cached = min(cached, prompt)
        rate = self.prompt if self.cached is None else self.cached
        tokens = (prompt - cached) * self.prompt + cached * rate + completion * self.completion
        return tokens + (images * self.image + meshes * self.mesh) * MICRO

    @property
    def free(self) -> bool:
        return not (self.prompt or self.completion or self.cached or self.image or self.mesh)


@dataclass(frozen=True, slots=True)
class Dated:
    """A price from `since` (Unix seconds) on, until a later one's."""

    price: Price
    since: float = 0.0


def at(prices: tuple[Dated, ...], now: float) -> Price | None:
    """The one in force: the latest that has begun; None where none has."""
    if not prices:
        return None
    if len(prices) == 1:  # nearly always, and on every request
        only = prices[0]
        return only.price if only.since <= now else None
    begun = [p for p in prices if p.since <= now]
    return max(begun, key=lambda p: p.since).price if begun else None
