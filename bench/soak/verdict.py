"""Whether anything stayed behind, from samples alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.soak.watch import Sample

GROWTH_MB = 12.0
"""Between the first and the last fifth after the warm-up: caches and the allocator still settle in a short run."""
PEAK_MB = 80.0
"""Over what the edge has at rest before any load: slow readers, large bodies and all their copies."""
MORE_DESCRIPTORS = 2
MORE_TASKS = 1


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    found: str
    good: bool


def lines(samples: Sequence[Sample], wrong: Sequence[str], settled: int, left_open: int, twice: int) -> list[Line]:
    """`samples`: of the whole run, with those at rest before and after."""
    before = [s for s in samples if s.at_rest and s.s <= samples[len(samples) // 2].s][-1]
    after = samples[-1]
    busy = [s for s in samples if not s.at_rest]
    busy = busy[len(busy) // 10 :]
    fifth = max(1, len(busy) // 5)
    first, last = (median(s.rss_mb for s in part) for part in (busy[:fifth], busy[-fifth:]))
    peak = max(s.rss_mb for s in samples) - samples[0].rss_mb
    slope = _slope([(s.s, s.rss_mb) for s in busy]) * 3600
    return [
        Line("memory", f"{first:.1f} MB at first, {last:.1f} MB at last ({slope:+.1f} MB an hour)",
             last - first <= GROWTH_MB),
        Line("memory at the peak", f"{peak:.0f} MB above rest", peak <= PEAK_MB),
        Line("descriptors", f"{before.descriptors} before, {after.descriptors} after",
             after.descriptors <= before.descriptors + MORE_DESCRIPTORS),
        Line("tasks", f"{before.tasks} before, {after.tasks} after", after.tasks <= before.tasks + MORE_TASKS),
        Line("requests in flight", f"{after.in_flight} after", after.in_flight == 0),
        Line("books", f"{settled:,} settled, {left_open} left open, {twice} settled twice",
             not left_open and not twice),
        Line("answers", "; ".join(wrong) or "all as they should be", not wrong),
    ]  # fmt: skip


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line that fits best."""
    if len(points) < 2:
        return 0.0
    x, y = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    spread = sum((p[0] - x) ** 2 for p in points)
    return sum((p[0] - x) * (p[1] - y) for p in points) / spread if spread else 0.0
