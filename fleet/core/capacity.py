"""What a replica carries under a promise: levels of concurrency, the last one that held, and the weight that follows.
Pure.

Peak throughput comes long after latency has become unusable: only levels that hold the promise count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog.core.slo import Slo


@dataclass(frozen=True, slots=True)
class Answered:
    """One request, in seconds. `tpot_s` None: it had one token."""

    ttft_s: float
    tpot_s: float | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Level:
    """`concurrency` requests at once for `seconds`. `waiting`, `kv`: as the engine told; None: it does not."""

    concurrency: int
    requests: int
    failed: int
    seconds: float
    tokens_per_s: float
    requests_per_s: float
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    waiting: int | None = None
    kv: float | None = None
    held: bool = False
    why: str = ""
    """Why it did not hold."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """`best` None: not even one request at a time held the promise."""

    levels: tuple[Level, ...]
    best: Level | None
    weight: float | None
    climbs_on: bool = False
    """The last level tried still held: the replica carries at least this."""


def ladder(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, …: each at most half again as much as the one before, up to `most`."""
    step = 1
    while step <= most:
        yield step
        if step >= 2 and (middle := step * 3 // 2) < min(step * 2, most + 1):
            yield middle
        step *= 2


def level(
    concurrency: int,
    answered: Sequence[Answered],
    failed: int,
    seconds: float,
    slo: Slo,
    waiting: int | None = None,
    kv: float | None = None,
) -> Level:
    """Judged against the promise."""
    ttft = p99([a.ttft_s for a in answered])
    tpot = p99([a.tpot_s for a in answered if a.tpot_s is not None])
    why = _missed(len(answered), failed, ttft, tpot, slo)
    return Level(
        concurrency,
        len(answered),
        failed,
        round(seconds, 3),
        round(sum(a.tokens for a in answered) / seconds, 2) if seconds else 0.0,
        round(len(answered) / seconds, 3) if seconds else 0.0,
        ttft,
        tpot,
        waiting,
        kv,
        not why,
        why,
    )


def capacity(levels: Sequence[Level]) -> Capacity:
    """The last level that held, before the first that did not."""
    best = None
    for found in levels:
        if not found.held:
            break
        best = found
    # Shares of one model's traffic: requests a second compare across its profiles, whatever the cards.
    weight = None if best is None else min(max(float(f"{best.requests_per_s:.3g}"), 0.001), 1000.0)
    return Capacity(tuple(levels), best, weight, bool(levels) and levels[-1].held)


def p99(found: Sequence[float]) -> float | None:
    """By nearest rank; of fewer than a hundred it is the worst."""
    return round(sorted(found)[math.ceil(len(found) * 0.99) - 1], 4) if found else None


def _missed(answered: int, failed: int, ttft: float | None, tpot: float | None, slo: Slo) -> str:
    if failed:
        return f"{failed} of {answered + failed} requests failed"
    if not answered:
        return "no request was answered in time"
    if slo.ttft_p99_s is not None and ttft is not None and ttft > slo.ttft_p99_s:
        return f"the first token took {ttft:.3g} s, and {slo.ttft_p99_s:g} s are promised"
    if slo.tpot_p99_s is not None and tpot is not None and tpot > slo.tpot_p99_s:
        return f"a token took {tpot * 1000:.3g} ms, and {slo.tpot_p99_s * 1000:g} ms are promised"
    return ""
