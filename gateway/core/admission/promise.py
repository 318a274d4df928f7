"""Whether a model keeps what it promises: the 99th percentile of its streams over the last five minutes. Pure."""

from __future__ import annotations

from collections import deque
from math import exp, floor, log

from gateway.core.snapshot import Slo

WINDOW_S = 300.0
SLICE_S = 10.0
LEAST = 20
"""Streams in the window, before which nothing is said."""
_STEP = log(1.02)
"""Times are kept to two per cent."""


class Window:
    """Times of the last five minutes."""

    def __init__(self) -> None:
        self._slices: deque[tuple[float, dict[int, int]]] = deque()

    def add(self, value_s: float, now: float) -> None:
        if not self._slices or now - self._slices[-1][0] >= SLICE_S:
            self._slices.append((now, {}))
        counts = self._slices[-1][1]
        at = floor(log(max(value_s, 1e-6)) / _STEP)
        counts[at] = counts.get(at, 0) + 1

    def p99(self, now: float) -> float | None:
        """None: too few to tell."""
        while self._slices and now - self._slices[0][0] > WINDOW_S:
            self._slices.popleft()
        counts: dict[int, int] = {}
        for _, each in self._slices:
            for at, count in each.items():
                counts[at] = counts.get(at, 0) + count
        total = sum(counts.values())
        if total < LEAST:
            return None
        above = total // 100
        for at in sorted(counts, reverse=True):
            above -= counts[at]
            if above < 0:
                return exp((at + 0.5) * _STEP)
        return None


class Promise:
    """One model's."""

    def __init__(self) -> None:
        self.ttft, self.tpot = Window(), Window()
        self.ttft_p99_s: float | None = None
        self.tpot_p99_s: float | None = None

    def streamed(self, ttft_s: float, tpot_s: float | None, now: float) -> None:
        """A stream had its first content `ttft_s` after it was let in: what it waited here is not the model's."""
        self.ttft.add(ttft_s, now)
        if tpot_s is not None:
            self.tpot.add(tpot_s, now)

    def excess(self, slo: Slo, now: float) -> float:
        """How far it is past the worse of its promises: 0.5 where it takes half as long again. 0: it keeps them, or too
        little is known."""
        self.ttft_p99_s, self.tpot_p99_s = self.ttft.p99(now), self.tpot.p99(now)
        past = 0.0
        for found, promised in ((self.ttft_p99_s, slo.ttft_p99_s), (self.tpot_p99_s, slo.tpot_p99_s)):
            if found is not None and promised:
                past = max(past, found / promised - 1.0)
        return past
