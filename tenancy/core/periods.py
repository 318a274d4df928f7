"""Which period a budget is in, and when that ends, by the wall clock of a time zone. Pure.

A day there may have 23 or 25 hours, and a midnight may be missing or come twice: a period begins at the first moment
of its first day, whatever the clocks do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

from tenancy.core.limits import Period

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Running:
    """`name` is `2026-11-29`, `2026-W48`, `2026-11` or `total`. `until` and `since` are Unix seconds, 0 where it never
    ends or ever began."""

    name: str
    until: float
    since: float = 0.0


def running(period: Period, zone: tzinfo, now: float) -> Running:
    """The period that `now` (Unix seconds) is in."""
    today = datetime.fromtimestamp(now, zone).date()
    match period:
        case "day":
            return Running(today.isoformat(), _begins(today + _DAY, zone, now), _began(today, zone))
        case "week":
            year, week, weekday = today.isocalendar()
            monday = today + (1 - weekday) * _DAY
            return Running(f"{year}-W{week:02}", _begins(monday + 7 * _DAY, zone, now), _began(monday, zone))
        case "month":
            first = today.replace(day=1)
            following = (first + 31 * _DAY).replace(day=1)
            return Running(f"{today:%Y-%m}", _begins(following, zone, now), _began(first, zone))
        case "total":
            return Running("total", 0.0)


def _began(day: date, zone: tzinfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


def _begins(day: date, zone: tzinfo, now: float) -> float:
    """The first moment of `day`. Where clocks go back over midnight it comes twice, and the first may have passed."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    first = midnight.timestamp()
    return first if first > now else midnight.replace(fold=1).timestamp()
