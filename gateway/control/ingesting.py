"""Shipping the spools into usage rows: one process at a time, each request once however often its lines are read."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from django.db import DataError, transaction
from django.db.models import Q

from gateway.control.journal import Journal, journals, only_shipper
from gateway.core.record import Intent, Settlement
from gateway.models import Usage
from llmgw import metrics
from tenancy.models import Key

log = logging.getLogger(__name__)
_BATCH = 500


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
            _insert(rows)
        journal.commit()
        shipped += len(rows)
        more = batch.more
    metrics.PROCESS.add(metrics.INGESTED, amount=shipped)
    return shipped


def _insert(rows: list[Usage]) -> None:
    """Once each. A row that the store does not take must not hold up all that come after it."""
    try:
        with transaction.atomic():
            Usage.objects.bulk_create(rows, ignore_conflicts=True, batch_size=_BATCH)
            _touch_keys(rows)
    except (DataError, ValueError, OverflowError):
        if len(rows) == 1:
            log.exception("the usage row of %s does not fit the store and is lost", rows[0].request_id)
            return
        for row in rows:
            _insert([row])


def _row(intent: Intent, settlement: Settlement) -> Usage:
    row = _begun(intent)
    row.outcome = settlement.outcome
    row.status = settlement.status
    row.code = _text(settlement.code, 60)
    row.replica, row.node = settlement.replica[:20], settlement.node[:120]
    row.route, row.attempts = settlement.route[:300], settlement.attempts
    row.prompt_tokens, row.completion_tokens = settlement.prompt_tokens, settlement.completion_tokens
    row.cached_tokens, row.estimated = settlement.cached_tokens, settlement.estimated
    row.ttft_ms, row.duration_ms = settlement.ttft_ms, settlement.duration_ms
    return row


def _unknown(intent: Intent) -> Usage:
    """Its edge died: that it was sent is known, what became of it is not."""
    row = _begun(intent)
    row.outcome, row.estimated = Usage.Outcome.UNKNOWN, True
    return row


def _begun(intent: Intent) -> Usage:
    return Usage(
        request_id=intent.id,
        at=datetime.fromtimestamp(intent.at, UTC),
        endpoint=intent.endpoint,
        model=_text(intent.model, 120),
        asked=_text(intent.asked, 120),
        stream=intent.stream,
        organisation=intent.organisation,
        team=intent.team,
        project=intent.project,
        key=intent.key,
        person=intent.person,
        edge=intent.edge[:60],
    )


def _text(value: str, most: int) -> str:
    """What a client or an engine wrote, as a store takes it: no NUL, no half characters."""
    return value.replace("\0", "").encode(errors="replace").decode()[:most]


def _touch_keys(rows: Iterable[Usage]) -> None:
    """When each key was last used: one statement a key that was, and only forwards."""
    last: dict[str, datetime] = {}
    for row in rows:
        if row.key and (row.key not in last or last[row.key] < row.at):
            last[row.key] = row.at
    for key, at in last.items():
        Key.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=at), public_id=key).update(last_used_at=at)
