"""Shipping the spools into usage rows: one process at a time, each request once however often its lines are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from django.db import DataError, transaction
from django.utils import timezone

from gateway.control import bulk, partitions, retention, rollups
from gateway.control.journal import Journal, journals, only_shipper
from gateway.core.record import Intent, Settlement
from gateway.models import Usage
from llmgw import metrics, series
from tenancy.models import Key

log = logging.getLogger(__name__)
_BATCH = 500
_listeners: list[Callable[[list[Usage]], object]] = []


def listen(hear: Callable[[list[Usage]], object]) -> None:
    """Registers who is told of the rows that were shipped; called from the app's `ready()`."""
    if hear not in _listeners:
        _listeners.append(hear)


def ingest(folder: Path) -> int:
    """Everything that is new in the spools of `folder`; how many rows it was. 0 where another process is at it."""
    shipped = 0
    with only_shipper(folder) as mine:
        if not mine:
            return 0
        for journal in journals(folder):
            shipped += _ship(journal)
    return shipped


def _ship(journal: Journal) -> int:
    shipped, more = 0, True
    while more:
        batch = journal.read()
        rows = [_row(i, s) for i, s in batch.settled] + [_unknown(i) for i in batch.abandoned]
        if rows:
            keep(rows)
            for hear in _listeners:
                hear(rows)
        journal.commit()
        shipped += len(rows)
        more = batch.more
    metrics.PROCESS.add(series.INGESTED, amount=shipped)
    return shipped


def keep(rows: list[Usage]) -> None:
    """Once each, with its sums. A row that the store does not take must not hold up all that come after it.

    Locks are taken in one order (rows by id, sums, keys), so that two who ship never wait for one another in a circle.
    """
    now = timezone.now()
    partitions.ensure(now, (row.at for row in rows), retention.oldest(now))
    try:
        with transaction.atomic():
            new = _insert(sorted(rows, key=lambda row: row.request_id))
            rollups.add(rollups.summed(new, rollups.grain_s()))
            _touch_keys(new)
    except (DataError, ValueError, OverflowError):
        if len(rows) == 1:
            log.exception("the usage row of %s does not fit the store and is lost", rows[0].request_id)
            return
        for row in rows:
            keep([row])


def _insert(rows: list[Usage]) -> list[Usage]:
    """Those that were not there."""
    names = [field.attname for field in Usage._meta.concrete_fields]
    values = [[getattr(row, name) for name in names] for row in rows]
    new = {i for (i,) in bulk.insert(Usage._meta.db_table, names, values, "DO NOTHING RETURNING request_id")}
    return [row for row in rows if row.request_id in new]


def _row(intent: Intent, settlement: Settlement) -> Usage:
    row = _begun(intent)
    row.outcome = settlement.outcome
    row.status = settlement.status
    row.code, row.reason = _text(settlement.code, 60), _text(settlement.reason, 300)
    row.replica, row.node = _text(settlement.replica, 140), _text(settlement.node, 120)
    row.route, row.attempts = _text(settlement.route, 300), settlement.attempts
    row.served, row.hops = _text(settlement.served, 120), [_text(hop, 300) for hop in settlement.hops]
    row.prompt_tokens, row.completion_tokens = settlement.prompt_tokens, settlement.completion_tokens
    row.cached_tokens, row.estimated = settlement.cached_tokens, settlement.estimated
    row.cost, row.cache = settlement.cost, _text(settlement.cache, 8)
    row.saved, row.saved_tokens = settlement.saved, settlement.saved_tokens
    row.queued_ms, row.dispatched_ms = settlement.queued_ms, settlement.dispatched_ms
    row.ttft_ms, row.duration_ms = settlement.ttft_ms, settlement.duration_ms
    return row


def _unknown(intent: Intent) -> Usage:
    """Its edge died: that it was sent is known, what became of it is not."""
    row = _begun(intent)
    row.outcome, row.estimated = Usage.Outcome.UNKNOWN, True
    return row


def _begun(intent: Intent) -> Usage:
    return Usage(
        request_id=_text(intent.id, 40),
        at=datetime.fromtimestamp(intent.at, UTC),
        endpoint=_text(intent.endpoint, 20),
        model=_text(intent.model, 120),
        asked=_text(intent.asked, 120),
        stream=intent.stream,
        organisation=_text(intent.organisation, 16),
        team=_text(intent.team, 16),
        project=_text(intent.project, 16),
        key=_text(intent.key, 16),
        person=_text(intent.person, 16),
        edge=_text(intent.edge, 60),
        session=_text(intent.session, 128),
        end_user=_text(intent.end_user, 256),
        tags={_text(name, 64): _text(value, 512) for name, value in intent.tags.items()},
    )


def _text(value: str, most: int) -> str:
    """What a client or an engine wrote, as a store takes it: no NUL, no half characters."""
    return value.replace("\0", "").encode(errors="replace").decode()[:most]


def _touch_keys(rows: Iterable[Usage]) -> None:
    """When each key was last used, only forwards: taken in one order, written in one statement."""
    last: dict[str, datetime] = {}
    for row in rows:
        if row.key and (row.key not in last or last[row.key] < row.at):
            last[row.key] = row.at
    held = Key.objects.filter(public_id__in=last).order_by("public_id").select_for_update(no_key=True)
    moved = []
    for key in held.only("public_id", "last_used_at"):
        at = last[key.public_id]
        if key.last_used_at is None or key.last_used_at < at:
            key.last_used_at = at
            moved.append(key)
    Key.objects.bulk_update(moved, ["last_used_at"], batch_size=_BATCH)
