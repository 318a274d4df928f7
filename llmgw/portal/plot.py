"""Bars over days as plain numbers for an SVG: from zero, a round scale, gaps where nothing is known. Pure.

Coordinates are strings: a template must not write them in the page's language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 720.0, 180.0, 64.0, 12.0, 24.0, 8.0


@dataclass(frozen=True, slots=True)
class Bar:
    x: str
    y: str
    width: str
    height: str
    layer: int
    index: int


@dataclass(frozen=True, slots=True)
class Tick:
    """`value` as a number for the page to write; `at` its coordinate."""

    value: int
    at: str


@dataclass(frozen=True, slots=True)
class Plot:
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    labels: tuple[Tick, ...]
    """Which columns carry a label below: `value` is the column's index."""
    width: str = f"{WIDTH:.0f}"
    height: str = f"{HEIGHT:.0f}"
    left: str = f"{LEFT:.0f}"
    right: str = f"{WIDTH - RIGHT:.0f}"
    tick_x: str = f"{LEFT - 8:.0f}"
    label_y: str = f"{HEIGHT - 6:.0f}"


def stacked(first: Sequence[int | None], *others: Sequence[int | None]) -> Plot:
    """Columns of `first`, with the others on top of it, a layer each; None leaves a gap."""
    columns = list(zip(first, *others, strict=True))
    sums = [sum(value or 0 for value in column) for column in columns]
    top = scale(max(sums, default=0))
    room = HEIGHT - BOTTOM - TOP
    step = (WIDTH - LEFT - RIGHT) / max(1, len(first))
    wide = min(36.0, step * 0.7)
    bars: list[Bar] = []
    for i, column in enumerate(columns):
        base = HEIGHT - BOTTOM
        for layer, value in enumerate(column):
            if not value:
                continue
            tall = max(1.0, room * value / top)
            base -= tall
            x = LEFT + step * i + (step - wide) / 2
            bars.append(Bar(f"{x:.1f}", f"{base:.1f}", f"{wide:.1f}", f"{tall:.1f}", layer, i))
    ticks = tuple(Tick(v, f"{HEIGHT - BOTTOM - room * v / top:.1f}") for v in (0, top // 2, top))
    every = max(1, -(-len(first) // 8))
    labels = tuple(
        Tick(i, f"{LEFT + step * (i + 0.5):.1f}") for i in range(len(first)) if (len(first) - 1 - i) % every == 0
    )
    return Plot(tuple(bars), ticks, labels)


def scale(most: int) -> int:
    """The round figure at the top of an axis: 2, 4, 10, 20, 40, 100, … at or above `most`."""
    top, factors = 2, (2, 2.5, 2)
    n = 0
    while top < most:
        top = int(top * factors[n % 3])
        n += 1
    return top
