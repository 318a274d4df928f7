"""Who asks for a model that loads on demand, and whether that keeps it or starts it. Pure.

An ask is over with its answer. What runs stays for a while after the last one; what does not run is started only for
somebody who waits, or who was refused and is still hoped to come back: else two models on one card would start one
another long after everybody is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo

from fleet.core.world import Demand

WEEKS = 4
ENOUGH_WEEKS = 2
"""Of the last `WEEKS`, in which it was asked for at this hour."""
AHEAD_S = 600.0
"""Before that hour begins."""


def wants(demand: Demand, idle_timeout_s: float, now: float, *, running: bool = True, heard: bool = True) -> str:
    """Why one replica is wanted, in words; nothing where none is. `heard`: some gateway has told what it knows."""
    if demand.waiting:
        return f"{_many(demand.waiting)} for it"
    if demand.waiting_since is not None:
        return f"somebody asked {now - demand.waiting_since:.0f} s ago and was told to come again"
    if not running:
        return ""
    if demand.in_flight:
        return "it is answering"
    if demand.last_asked is not None and now - demand.last_asked < idle_timeout_s:
        return f"somebody asked {now - demand.last_asked:.0f} s ago, and it stays for {idle_timeout_s:.0f} s"
    if not heard:
        return "no gateway has been heard, and nobody knows whether it is in use"
    return ""


def hours_before(now: float, zone: tzinfo) -> dict[int, frozenset[float]]:
    """For this hour of the week and the one that begins within `AHEAD_S`: when it was in each of the last weeks, as
    beginnings of hours in Unix seconds; by the week's number, 1 the last. By the clock on the wall."""
    found: dict[int, frozenset[float]] = {}
    for week in range(1, WEEKS + 1):
        moments = (datetime.fromtimestamp(at, zone) - timedelta(weeks=week) for at in (now, now + AHEAD_S))
        found[week] = frozenset(m.timestamp() // 3600 * 3600 for m in moments)
    return found


def expected(asked: Iterable[tuple[str, float]], now: float, zone: tzinfo) -> frozenset[str]:
    """The models that people use at this hour of the week; `asked`: (model, the beginning of an hour in which somebody
    asked for it)."""
    weeks: dict[str, set[int]] = defaultdict(set)
    before = hours_before(now, zone)
    for model, hour in asked:
        weeks[model].update(week for week, hours in before.items() if hour in hours)
    return frozenset(model for model, found in weeks.items() if len(found) >= ENOUGH_WEEKS)


def _many(count: int) -> str:
    return "a request waits" if count == 1 else f"{count} requests wait"
