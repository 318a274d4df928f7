"""What a level of the tree, or a key, allows: each level's own figures bind the sum of everything below it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import msgspec

from agent.wire.reason import Reason
from llmgw.money import MOST, amount, written

Period = Literal["day", "week", "month", "total"]
PERIODS: tuple[Period, ...] = ("day", "week", "month", "total")
MOST_COUNT = 1_000_000_000
"""Requests, tokens a minute, or requests at once: more is a slip of the hand."""
FIGURES = {
    "rpm": "requests a minute",
    "tpm": "tokens a minute",
    "concurrent": "requests at once",
    "budget": "the budget",
}


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


def problems(limits: Limits) -> tuple[Reason, ...]:
    """Everything that keeps `limits` from being a level's."""
    found = []
    for name, what in FIGURES.items():
        figure, most = getattr(limits, name), MOST if name == "budget" else MOST_COUNT
        if figure is None:
            continue
        if isinstance(figure, bool) or not isinstance(figure, int):
            found.append(Reason("bad_limit", f"{what} must be a whole number, and {figure!r} was given"))
        elif not 0 <= figure <= most:
            shown = (written(most), written(figure)) if name == "budget" else (str(most), str(figure))
            found.append(Reason("bad_limit", f"{what} must be between 0 and {shown[0]}, and {shown[1]} was given"))
    if limits.period not in PERIODS:
        found.append(
            Reason(
                "bad_period", f"a budget is for a {', '.join(PERIODS[:-1])} or in {PERIODS[-1]}, not {limits.period!r}"
            )
        )
    return tuple(found)


def told(limits: Limits) -> dict[str, Any]:
    """As commands, the API and pages say them: all of them, None where nothing is said; the budget as a decimal."""
    budget = limits.budget
    return {
        **{name: getattr(limits, name) for name in FIGURES if name != "budget"},
        "budget": None if budget is None else written(budget),
        "period": None if budget is None else limits.period,
    }


def laid(limits: Limits, changes: Mapping[str, Any]) -> tuple[Limits, tuple[Reason, ...]]:
    """`changes` (figures by their names, the budget as a decimal, None takes back) over `limits`, and everything that
    is wrong. A period is said with its budget or later, and goes with it."""
    known = {f.name for f in fields(limits)}
    found = [
        Reason("bad_limit", f"there is no limit {name}; there are {', '.join(sorted(known))}")
        for name in sorted(set(changes) - known)
    ]
    figures = {name: figure for name, figure in changes.items() if name in known and name != "budget"}
    if "budget" in changes:
        budget = None if changes["budget"] is None else amount(str(changes["budget"]))
        if isinstance(budget, Reason):
            found.append(budget)
        else:
            figures["budget"] = budget
    period = figures.pop("period", None)
    after = replace(limits, **figures)
    if after.budget is None:
        after = replace(after, period="month")
        if period is not None and not found:
            found.append(Reason("no_budget", "a period is a budget's: say the budget too"))
    elif period is not None:
        after = replace(after, period=period)
    return after, (*found, *problems(after))


def with_defaults(own: Limits, rpm: int | None, tpm: int | None, tree: Iterable[Limits]) -> Limits:
    """A key's limits, with `rpm` and `tpm` where neither it nor a level of its `tree` says anything. 0 or None: the
    cluster has no default."""
    named = (own, *tree)
    return replace(
        own,
        rpm=own.rpm if any(limits.rpm is not None for limits in named) else rpm or None,
        tpm=own.tpm if any(limits.tpm is not None for limits in named) else tpm or None,
    )
