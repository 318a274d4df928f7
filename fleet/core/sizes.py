"""Bytes as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def gib(count: int) -> str:
    """`12.5 GiB`, `300 MiB`: the largest unit that leaves a figure of at least one."""
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}".replace(".0 ", " ")
