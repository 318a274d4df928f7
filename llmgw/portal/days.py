"""Days of a zone as they are counted: one bucket a local day, the 23- and the 25-hour ones included. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo


def span(first: date, last: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The instants [start, end) that the local days `first` to `last`, both included, cover."""
    return _midnight(first, zone), _midnight(last + timedelta(days=1), zone)


def days(first: date, last: date) -> Iterator[date]:
    """Each day from `first` to `last`, both included."""
    for n in range((last - first).days + 1):
        yield first + timedelta(days=n)


def latest(count: int, now: datetime, zone: ZoneInfo) -> tuple[date, date]:
    """The last `count` local days, today included."""
    today = now.astimezone(zone).date()
    return today - timedelta(days=count - 1), today


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
