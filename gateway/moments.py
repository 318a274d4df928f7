"""When, as people write it: a day, a month, or a moment; in the current time zone where none is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from django.utils import timezone

from gateway.control.partitions import later, month_of
from gateway.spending import Which, midnight
from llmgw.cluster.errors import Invalid


def read(text: str, *, end: bool = False) -> datetime:
    """`2026-11-03` (that day's first moment; with `end` the next day's), or `2026-11-03T12:30`; raises `Invalid`."""
    try:
        if len(text) == 10:
            return midnight(date.fromisoformat(text) + timedelta(days=1 if end else 0))
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise Invalid(
            "bad_moment", f"a moment is written like 2026-11-03 or 2026-11-03T12:30, and this is {text[:40]!r}"
        ) from None
    return found if found.tzinfo is not None else timezone.make_aware(found)


def within(which: Which, since: str | None, until: str | None) -> Which:
    """`which` from `since` to `until`, as far as they are given."""
    if until:
        which = replace(which, until=read(until, end=True))
    if since:
        which = replace(which, since=read(since))
    if which.since >= which.until:
        raise Invalid("bad_moment", f"{which.since.isoformat()} is not before {which.until.isoformat()}")
    return which


def month(text: str | None, now: datetime) -> tuple[datetime, datetime]:
    """The month `2026-11` in UTC, which is how rows are kept; without one the running month."""
    if text is None:
        first = month_of(now)
        return first, later(first, 1)
    try:
        first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise Invalid("bad_month", f"a month is written like 2026-11, and this is {text[:20]!r}") from None
    return first, later(first, 1)
