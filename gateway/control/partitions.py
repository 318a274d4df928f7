"""The months of the usage rows on PostgreSQL: made ahead, dropped whole when they are old.

Rows of a month that nobody made (a clock that was wrong) go to the default partition, and move out of it when their
month is made. Everything here waits for locks a few seconds at most, since whoever waits for a lock holds up all who
come after; what did not work is tried again by the next pass. Where the rows are one table (SQLite) there is nothing
to make, and old rows go slice by slice (`gateway.control.retention`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import OperationalError, connection, transaction

from gateway.models import Usage

log = logging.getLogger(__name__)

TABLE = Usage._meta.db_table
DEFAULT = f"{TABLE}_default"
AHEAD = 2
"""Months made before they begin."""
WAIT_MS = 3000
"""For a lock."""
_LOCK = 0x6C6C6D67
"""The advisory lock of whoever makes or drops one."""
_BOUNDS = re.compile(r"FOR VALUES FROM \((?:MINVALUE|'([^']+)')\) TO \('([^']+)'\)")

_known: set[datetime] = set()


@dataclass(frozen=True, slots=True)
class Partition:
    """`begins` None: everything before `ends`."""

    name: str
    begins: datetime | None
    ends: datetime


def month_of(at: datetime) -> datetime:
    """Where the month of `at` begins, in UTC."""
    at = at.astimezone(UTC)
    return datetime(at.year, at.month, 1, tzinfo=UTC)


def later(month: datetime, months: int) -> datetime:
    """The month that begins `months` after `month`."""
    n = month.year * 12 + month.month - 1 + months
    return datetime(n // 12, n % 12 + 1, 1, tzinfo=UTC)


def divided() -> bool:
    return connection.vendor == "postgresql"


def ensure(now: datetime, ats: Iterable[datetime] = (), oldest: datetime | None = None) -> None:
    """The months that are needed are there: this one, those ahead, and those of `ats` from `oldest` on. Cheap when
    they are known to be. Never raises for a lock that was not got: the default partition takes the rows."""
    if not divided():
        return
    this = month_of(now)
    wanted = {later(this, n) for n in range(AHEAD + 1)}
    if oldest is not None:
        wanted |= {month for month in map(month_of, ats) if month_of(oldest) <= month <= later(this, AHEAD)}
    if wanted <= _known:
        return
    try:
        with transaction.atomic():
            _alone()
            found = partitions()
            for month in sorted(wanted):
                if not any((p.begins is None or p.begins <= month) and month < p.ends for p in found):
                    _make(month)
        _known.update(wanted)
    except OperationalError as e:
        log.warning("the months of the usage rows could not be made: %s", str(e).splitlines()[0])


def partitions() -> list[Partition]:
    """All but the default one, the oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_class c JOIN pg_inherits i ON "
            "i.inhrelid = c.oid WHERE i.inhparent = %s::regclass",
            [TABLE],
        )
        rows = cursor.fetchall()
    found = []
    for name, text in rows:
        bounds = _BOUNDS.fullmatch(text)
        if bounds is not None:
            begins = datetime.fromisoformat(bounds[1]).astimezone(UTC) if bounds[1] else None
            found.append(Partition(name, begins, datetime.fromisoformat(bounds[2]).astimezone(UTC)))
    return sorted(found, key=lambda p: p.ends)


def drop_before(at: datetime) -> list[str]:
    """Partitions that end at `at` or earlier go, whole; their names."""
    gone = []
    for partition in partitions():
        if partition.ends > at:
            break
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                _alone()
                cursor.execute(f'DROP TABLE IF EXISTS "{partition.name}"')
        except OperationalError as e:
            log.warning("%s could not be dropped yet: %s", partition.name, str(e).splitlines()[0])
            break
        gone.append(partition.name)
    _known.clear()
    return gone


def _alone() -> None:
    """One at a time makes or drops months, and gives up soon."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = {WAIT_MS}")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def _make(month: datetime) -> None:
    """Made apart, filled with what strayed, then attached: readers and writers of other months are not held up."""
    name, begins, ends = f"{TABLE}_{month:%Y_%m}", month.isoformat(), later(month, 1).isoformat()
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE TABLE "{name}" (LIKE {TABLE} INCLUDING ALL)')
        cursor.execute(f"LOCK TABLE {DEFAULT} IN ACCESS EXCLUSIVE MODE")
        cursor.execute(
            f'WITH strays AS (DELETE FROM {DEFAULT} WHERE at >= %s AND at < %s RETURNING *) INSERT INTO "{name}" '  # noqa: S608
            "SELECT * FROM strays",
            [begins, ends],
        )
        cursor.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION \"{name}\" FOR VALUES FROM ('{begins}') TO ('{ends}')")
