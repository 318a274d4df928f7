"""What a level of the tree, or a key, allows: each level's own figures bind the sum of everything below it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import msgspec

Period = Literal["day", "week", "month", "total"]
PERIODS: tuple[Period, ...] = ("day", "week", "month", "total")


@dataclass(frozen=True, slots=True)
class Limits:
    """None: this level says nothing. Zero allows nothing.

    rpm, tpm: requests and tokens in any 60 seconds. concurrent: requests at once. budget: nano-units of money in a
    `period` that begins at midnight (on Monday, on the 1st) in the project's time zone; `total` never begins again.
    """

    rpm: int | None = None
    tpm: int | None = None
    concurrent: int | None = None
    budget: int | None = None
    period: Period = "month"

    def __bool__(self) -> bool:
        return any(figure is not None for figure in (self.rpm, self.tpm, self.concurrent, self.budget))


def stored(limits: Limits) -> dict[str, Any]:
    """As a level's row keeps it: only what it says."""
    found: dict[str, Any] = {f.name: getattr(limits, f.name) for f in fields(limits)}
    if limits.budget is None:
        del found["period"]
    return {name: figure for name, figure in found.items() if figure is not None}


def from_stored(row: Mapping[str, Any]) -> Limits:
    """What `stored` wrote; raises `msgspec.ValidationError` for anything else."""
    return msgspec.convert(dict(row), Limits)
