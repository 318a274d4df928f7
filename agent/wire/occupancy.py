"""How much of a card is held, and when that counts: one rule for the node, which lets a start wait, and for the
planner, which passes such a card over. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def held_bytes(memory_bytes: int | None, free_bytes: int | None, by_processes: Iterable[int | None]) -> int:
    """By the card's own figures, and at least what its processes hold; a process whose size is not told counts as 0."""
    held = sum(size or 0 for size in by_processes)
    if memory_bytes is None or free_bytes is None:
        return held
    return max(memory_bytes - free_bytes, held)


def counts(held: int, memory_bytes: int | None) -> bool:
    """Whether it is more than what a driver, an ECC reserve and a display hold of a card of `memory_bytes`, and nobody
    uses."""
    return held > max(2**30, (memory_bytes or 0) // 20)
