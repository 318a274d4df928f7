"""The sums by the hour (`UsageHour`): added to with the rows that were really inserted, and made anew from rows.

Whoever adds holds its rows already and takes the sums in one order, so that two who add never wait for one another in
a circle. `rebuild` locks the sums first: rows that are not committed yet are added by their own transaction after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from math import gcd
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from gateway.control import bulk
from gateway.models import Usage, UsageHour
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.zones import zone
from tenancy.models import Project

Identity = tuple[datetime, str, str, str, str, str, str]
NAMES = ("at", "organisation", "team", "project", "key", "person", "model")
SUMS = (
    "requests", "failed", "refused", "uncounted", "estimated", "hits", "prompt_tokens", "completion_tokens",
    "cached_tokens", "reused_tokens", "saved_answers", "saved_prefixes", "cost", "unpriced",
)  # fmt: skip
FAILED = (Usage.Outcome.ENGINE_FAILED, Usage.Outcome.TIMED_OUT, Usage.Outcome.UNKNOWN)
HITS = ("hit", "similar")
_TABLE = UsageHour._meta.db_table

# The same as `_figures`, as the store sums it up.
_SUMMED = """COUNT(*),
 SUM(CASE WHEN outcome IN ('engine_failed', 'timed_out', 'unknown') THEN 1 ELSE 0 END),
 SUM(CASE WHEN outcome = 'refused' THEN 1 ELSE 0 END),
 SUM(CASE WHEN outcome <> 'refused' AND (prompt_tokens IS NULL
   OR completion_tokens IS NULL AND endpoint <> 'embeddings') THEN 1 ELSE 0 END),
 SUM(CASE WHEN estimated THEN 1 ELSE 0 END),
 SUM(CASE WHEN cache IN ('hit', 'similar') THEN 1 ELSE 0 END),
 COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(completion_tokens), 0), COALESCE(SUM(cached_tokens), 0),
 COALESCE(SUM(CASE WHEN cache IN ('hit', 'similar') THEN saved_tokens END), 0),
 COALESCE(SUM(CASE WHEN cache IN ('hit', 'similar') THEN saved END), 0),
 COALESCE(SUM(CASE WHEN cache IN ('hit', 'similar') THEN 0 ELSE saved END), 0),
 COALESCE(SUM(cost), 0),
 SUM(CASE WHEN outcome <> 'refused' AND cost IS NULL THEN 1 ELSE 0 END)"""
ANSWERED_BY = "CASE WHEN served = '' THEN model ELSE served END"


@dataclass(frozen=True, slots=True)
class Sums:
    """One bucket: who used what, and how much."""

    identity: Identity
    figures: tuple[int, ...]
    """In the order of `SUMS`."""


def grain_s() -> int:
    """How long a bucket is: an hour, and less where days of the cluster or of a project begin at a half or a quarter
    of UTC's hours. Buckets of several lengths get along; those from before such a zone was set are made finer by
    `llmgw usage rebuild`."""
    named = Project.objects.exclude(time_zone="").order_by().values_list("time_zone", flat=True).distinct()
    found = [zone(name) for name in {settings.TIME_ZONE, cluster_settings.in_force().time_zone, *named}]
    return grain_of(each for each in found if isinstance(each, tzinfo))


def grain_of(zones: Iterable[tzinfo]) -> int:
    """Seconds: the longest part of an hour that days of all `zones` begin at."""
    moments = [datetime(2026, month, 1, tzinfo=zone) for zone in zones for month in (1, 7)]
    return gcd(3600, *(int((moment.utcoffset() or timedelta()).total_seconds()) for moment in moments))


def bucket(at: datetime, grain: int) -> datetime:
    seconds = int((at - _EPOCH) // _SECOND)
    return _EPOCH + timedelta(seconds=seconds - seconds % grain)


_EPOCH, _SECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1)


def summed(rows: Iterable[Usage], grain: int) -> list[Sums]:
    """The buckets of `rows`, in the order in which the store's are taken."""
    found: dict[Identity, list[int]] = {}
    for row in rows:
        who = (row.organisation, row.team, row.project, row.key, row.person, row.served or row.model)
        total = found.setdefault((bucket(row.at, grain), *who), [0] * len(SUMS))
        for i, figure in enumerate(_figures(row)):
            total[i] += figure
    return [Sums(identity, tuple(total)) for identity, total in sorted(found.items())]


def _figures(row: Usage) -> tuple[int, ...]:
    refused = row.outcome == Usage.Outcome.REFUSED
    counted = row.prompt_tokens is not None and (row.completion_tokens is not None or row.endpoint == "embeddings")
    return (
        1,
        row.outcome in FAILED,
        refused,
        not refused and not counted,
        row.estimated,
        row.cache in HITS,
        row.prompt_tokens or 0,
        row.completion_tokens or 0,
        row.cached_tokens or 0,
        (row.saved_tokens or 0) if row.cache in HITS else 0,
        (row.saved or 0) if row.cache in HITS else 0,
        0 if row.cache in HITS else row.saved or 0,
        row.cost or 0,
        not refused and row.cost is None,
    )


def add(sums: Sequence[Sums]) -> None:
    """In the caller's transaction. `sums` come sorted, each identity once."""
    added = ", ".join(f'"{name}" = {_TABLE}."{name}" + excluded."{name}"' for name in SUMS)
    names = ", ".join(f'"{name}"' for name in NAMES)
    rows = [(*s.identity, *map(int, s.figures)) for s in sums]
    bulk.insert(_TABLE, (*NAMES, *SUMS), rows, f"({names}) DO UPDATE SET {added}")


def rebuild(first: datetime, until: datetime) -> int:
    """The sums of [first, until) anew, from rows and corrections; how many buckets that were. A day at a time, each
    in a transaction of its own, so that the ingest never waits long. Both ends are where a bucket begins."""
    made, grain = 0, grain_s()
    while first < until:
        end = min(first + timedelta(days=1), until)
        with transaction.atomic():
            lock()
            UsageHour.objects.filter(at__gte=first, at__lt=end).delete()
            add(from_rows(first, end, grain))
            made += UsageHour.objects.filter(at__gte=first, at__lt=end).count()
        first = end
    return made


def lock() -> None:
    """Nobody adds to the sums until the transaction ends: SQLite has one writer at a time as it is."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {_TABLE} IN SHARE ROW EXCLUSIVE MODE")


def from_rows(first: datetime, until: datetime, grain: int) -> list[Sums]:
    """What the sums of [first, until) must be: rows and corrections."""
    found = {s.identity: list(s.figures) for s in _of_rows(first, until, grain)}
    cost = SUMS.index("cost")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {bucket_sql(grain)}, organisation, team, project, key, person, model, SUM(delta) "  # noqa: S608
            "FROM gateway_usagecorrection WHERE at >= %s AND at < %s GROUP BY 1, 2, 3, 4, 5, 6, 7",
            [instant(first), instant(until)],
        )
        for *identity, delta in cursor.fetchall():
            total = found.setdefault(identity_of(identity), [0] * len(SUMS))
            total[cost] += int(delta)
    return [Sums(identity, tuple(total)) for identity, total in sorted(found.items())]


def _of_rows(first: datetime, until: datetime, grain: int) -> list[Sums]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {bucket_sql(grain)}, organisation, team, project, key, person, {ANSWERED_BY}, {_SUMMED} "  # noqa: S608
            "FROM gateway_usage WHERE at >= %s AND at < %s GROUP BY 1, 2, 3, 4, 5, 6, 7",
            [instant(first), instant(until)],
        )
        return [Sums(identity_of(row[:7]), tuple(int(v) for v in row[7:])) for row in cursor.fetchall()]


def bucket_sql(grain: int) -> str:
    """The bucket of `at`, as the store works it out."""
    if connection.vendor == "postgresql":
        return f"to_timestamp(floor(extract(epoch FROM at) / {grain}) * {grain})"
    return f"datetime((strftime('%%s', at) / {grain}) * {grain}, 'unixepoch')"


def identity_of(row: Sequence[Any]) -> Identity:
    """From the first columns of a raw row, in the order of `NAMES`."""
    at = row[0] if isinstance(row[0], datetime) else datetime.fromisoformat(row[0]).replace(tzinfo=UTC)
    return (at.astimezone(UTC), *row[1:])


def instant(at: datetime) -> Any:
    """As the store's own functions want it: raw statements get no help from a field."""
    return connection.ops.adapt_datetimefield_value(at)
