"""A model's pace from requests that were answered here. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from llmgw.rehearsal.pure.queue import Pace

ENOUGH = 20
"""Streamed answers, before they are believed more than data sheets."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One streamed answer: tokens, seconds from asking the engine to its first token, and from there to its end."""

    prompt: int
    answer: int
    first_s: float
    rest_s: float


def pace(found: Sequence[Timed], start_s: float, beside: float = 0.0) -> Pace | None:
    """None: too few. What they took under the load that there was holds the batches of that load already, so more
    requests at once lengthen a step by `beside` only."""
    usable = [t for t in found if t.answer > 1 and t.first_s > 0 and t.rest_s >= 0]
    if len(usable) < ENOUGH:
        return None
    step_s = median(t.rest_s / (t.answer - 1) for t in usable)
    first_s, token_s = _line([(float(t.prompt), max(0.0, t.first_s - step_s)) for t in usable])
    return Pace(start_s, token_s, step_s, first_s, beside, measured=True)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(what stands before the prompt is read, seconds a token of it), neither below zero: the medians of the shorter
    and the longer half, which an outlier does not move."""
    ordered = sorted(points)
    half = len(ordered) // 2
    low, high = ordered[:half], ordered[half:]
    x1, y1 = median(x for x, _ in low), median(y for _, y in low)
    x2, y2 = median(x for x, _ in high), median(y for _, y in high)
    slope = max(0.0, (y2 - y1) / (x2 - x1)) if x2 > x1 else 0.0
    return max(0.0, median(y for _, y in ordered) - slope * median(x for x, _ in ordered)), slope
