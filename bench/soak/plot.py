"""Memory, descriptors and tasks over time, in one SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.soak.watch import Sample

WIDTH, HEIGHT, LEFT = 900, 110, 70
ROWS: tuple[tuple[str, Callable[[Sample], float]], ...] = (
    ("memory, MB", lambda s: s.rss_mb),
    ("descriptors", lambda s: s.descriptors),
    ("tasks", lambda s: s.tasks),
    ("in flight", lambda s: s.in_flight),
)


def svg(samples: Sequence[Sample]) -> str:
    size = f"0 0 {WIDTH} {len(ROWS) * (HEIGHT + 30) + 20}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-size="12" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    ends = samples[-1].s or 1.0
    for row, (title, value) in enumerate(ROWS):
        top = 20 + row * (HEIGHT + 30)
        most = max(value(s) for s in samples) or 1.0
        points = " ".join(
            f"{LEFT + s.s / ends * (WIDTH - LEFT - 10):.1f},{top + HEIGHT - value(s) / most * (HEIGHT - 14):.1f}"
            for s in samples
        )
        parts += [
            f'<text x="{LEFT}" y="{top}" font-weight="bold">{title}</text>',
            f'<text x="{LEFT - 6}" y="{top + 14}" text-anchor="end">{most:,.0f}</text>',
            f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>',
            f'<polyline points="{points}" fill="none" stroke="#2f6fb3" stroke-width="1.5"/>',
        ]
    parts.append(f'<text x="{WIDTH - 10}" y="{len(ROWS) * (HEIGHT + 30) + 12}" text-anchor="end">{ends:,.0f} s</text>')
    return "\n".join([*parts, "</svg>", ""])
