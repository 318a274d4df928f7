"""Bytes and times as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def gib(count: int) -> str:
    """`12.5 GiB`, `300 MiB`: the largest unit that leaves a figure of at least one."""
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}".replace(".0 ", " ")


def span(seconds: float) -> str:
    """`45 s`, `22 min`, `3 h`, `12 d`: as exactly as people want it."""
    for unit, length, least in (("d", 86400.0, 2), ("h", 3600.0, 2), ("min", 60.0, 2)):
        if seconds >= least * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
