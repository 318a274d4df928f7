"""When an answer says to come back: seconds, milliseconds, or a date read by the sender's own clock. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

CEILING_S = 300.0
"""Nobody is passed over for longer on a word alone."""


def wait_s(retry_after: bytes, date: bytes = b"", after_ms: bytes = b"", *, now: float) -> float | None:
    """Seconds to wait from the headers `retry-after`, `date` and `retry-after-ms`; None where they say nothing that
    makes sense. `now`: Unix seconds, for a sender without a clock."""
    found = _number(after_ms)
    wait = found / 1000 if found is not None else _number(retry_after)
    if wait is None and (until := _date(retry_after)) is not None:
        sent = _date(date)
        wait = until - (sent if sent is not None else now)
    if wait is None or wait < 0:
        return None
    return min(wait, CEILING_S)


def _number(value: bytes) -> float | None:
    try:
        found = float(value)
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


def _date(value: bytes) -> float | None:
    try:
        found = parsedate_to_datetime(value.decode("latin-1"))
    except (ValueError, OverflowError):
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
