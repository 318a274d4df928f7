"""How long usage is kept: rows as `keep.usage_days` says, their sums as `keep.rollup_days`."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

from gateway.control import partitions
from gateway.models import Usage, UsageHour
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.actions.keeping import MOST, forget_older

log = logging.getLogger(__name__)


def oldest(now: datetime) -> datetime:
    """Rows from before this may be gone."""
    return now - timedelta(days=cluster_settings.in_force().keep.usage_days)


def tidy(now: datetime | None = None) -> None:
    """Make the months ahead, and forget what is old: whole months on PostgreSQL, where what strayed into no month
    goes slice by slice, as everything does on SQLite."""
    now = now or timezone.now()
    partitions.ensure(now)
    since = oldest(now)
    if partitions.divided():
        for name in partitions.drop_before(since):
            log.info("usage rows that are old enough are gone: %s", name)
    gone = _forget_rows(since)
    if gone:
        log.info("%d old usage rows are gone", gone)
    days = cluster_settings.in_force().keep.rollup_days
    if days is not None:
        forget_older(UsageHour.objects, days, now)


def _forget_rows(since: datetime) -> int:
    table = partitions.DEFAULT if partitions.divided() else Usage._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {table} WHERE request_id IN "  # noqa: S608 - a name of ours
            f"(SELECT request_id FROM {table} WHERE at < %s ORDER BY at LIMIT {MOST})",
            [connection.ops.adapt_datetimefield_value(since)],
        )
        return int(cursor.rowcount)
