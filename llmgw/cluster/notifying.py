"""Telling the webhooks what is due, each of it once, three times tried. Any worker may call it at any time.

A delivery is claimed by putting off its next try; one whose worker died in its midst is tried again after that, so a
receiver may hear something twice in that one case, under the same `x-llmgw-delivery`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from llmgw import metrics, series
from llmgw.cluster import webhooks
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core import notices as core
from llmgw.cluster.models import Delivery, Notice
from llmgw.cluster.webhooks import Answer, Target

log = logging.getLogger(__name__)

CLAIM_S = 120.0
AT_ONCE = 200
_GONE = Answer(False, "the webhook is no longer in the settings")
_running = threading.Lock()


def run() -> int:
    """How many deliveries were tried. Two queries where nothing is due."""
    if not _running.acquire(blocking=False):
        return 0
    try:
        _give(timezone.now())
        return _deliver(timezone.now())
    finally:
        _running.release()


def try_out(only: str = "") -> list[dict[str, Any]]:
    """A test event to every webhook at once, or to the one with this id, and how each answered; a row each."""
    targets = webhooks.targets(cluster_settings.in_force().notify.webhooks)
    targets = [target for target in targets if only in ("", target.id)]
    now = timezone.now()
    event = core.Event(f"test-{now.timestamp():.0f}", core.TEST, now.isoformat(), "llmgw", "this is a test of llmgw")
    answers = _each([(target, [event]) for target in targets])
    return [
        {"webhook": t.to, "format": t.form, "good": a[0].good, "answer": a[0].said, "ms": a[0].took_ms}
        for t, a in zip(targets, answers, strict=True)
    ]


def _give(now: datetime) -> None:
    """What is due to the webhooks that want it."""
    due = list(Notice.objects.filter(told_at=None, due_at__lte=now).order_by("due_at", "id")[:AT_ONCE])
    if not due:
        return
    hooks = webhooks.targets(cluster_settings.in_force().notify.webhooks)
    for notice in due:
        with transaction.atomic():
            mine = Notice.objects.filter(pk=notice.pk, told_at=None, due_at__isnull=False).update(told_at=now)
            if mine:
                wanted = [h for h in hooks if h.wants(notice.kind)]
                Delivery.objects.bulk_create(Delivery(notice=notice, webhook=h.id, to=h.to, due_at=now) for h in wanted)
        if mine:
            metrics.PROCESS.add(series.NOTICES, (notice.kind,))


def _deliver(now: datetime) -> int:
    rows = list(
        Delivery.objects.filter(state=Delivery.State.WAITING, due_at__lte=now)
        .select_related("notice")
        .order_by("id")[:AT_ONCE]
    )
    mine = [row for row in rows if _claim(row, now)]
    if not mine:
        return 0
    hooks = {t.id: t for t in webhooks.targets(cluster_settings.in_force().notify.webhooks)}
    groups: dict[str, list[Delivery]] = {}
    for row in mine:
        groups.setdefault(row.webhook, []).append(row)
    known = {id: group for id, group in groups.items() if id in hooks}
    answers = _each([(hooks[id], [_event(row.notice) for row in group]) for id, group in known.items()])
    for group, answered in zip(known.values(), answers, strict=True):
        for row, answer in zip(group, answered, strict=False):
            _note(row, answer)
        for row in group[len(answered) :]:  # behind one that failed, or too slow: not tried
            Delivery.objects.filter(pk=row.pk).update(due_at=now + timedelta(seconds=core.PAUSES_S[0]), tries=row.tries)
    for id in groups.keys() - known.keys():
        for row in groups[id]:
            row.tries = core.TRIES
            _note(row, _GONE)
    return len(mine)


def _claim(row: Delivery, now: datetime) -> bool:
    until = now + timedelta(seconds=CLAIM_S)
    held = Delivery.objects.filter(pk=row.pk, state=Delivery.State.WAITING, due_at=row.due_at)
    return held.update(due_at=until, tries=F("tries") + 1) == 1


def _each(asked: Sequence[tuple[Target, list[core.Event]]]) -> list[list[Answer]]:
    """A slow one does not hold up the others."""
    if not asked:
        return []
    with ThreadPoolExecutor(max_workers=min(len(asked), 8), thread_name_prefix="webhook") as pool:
        return list(pool.map(lambda one: webhooks.send(*one), asked))


def _note(row: Delivery, answer: Answer) -> None:
    now = timezone.now()
    tries = min(row.tries + 1, core.TRIES)
    changes: dict[str, Any] = {"answer": answer.said, "at": now, "tries": tries}
    if answer.good:
        changes["state"] = Delivery.State.SENT
    else:
        again = core.next_try_at(now.timestamp(), tries, answer.retry_after_s)
        if again is None:
            changes["state"] = Delivery.State.FAILED
            log.error("%s was not told of %s: %s", row.to, row.notice, answer.said)
        else:
            changes["due_at"] = now + timedelta(seconds=again - now.timestamp())
    Delivery.objects.filter(pk=row.pk).update(**changes)
    metrics.PROCESS.add(series.DELIVERIES, ("sent" if answer.good else "failed",))


def _event(notice: Notice) -> core.Event:
    return core.Event(
        id=str(notice.public_id),
        kind=notice.kind,
        at=notice.at.isoformat(),
        subject=notice.subject,
        message=notice.message,
        detail=notice.detail,
        command=notice.command,
    )
