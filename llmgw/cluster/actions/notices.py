"""Beginning and ending notices. Whoever looks after something calls `stand` with how it is, as often as he looks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core import notices as core
from llmgw.cluster.errors import Invalid
from llmgw.cluster.models import Notice

log = logging.getLogger(__name__)


def stand(standings: Mapping[str, core.Standing]) -> None:
    """How things stand now, by kind. One query where nothing has changed."""
    known = list(Notice.objects.filter(kind__in=list(standings), over_at=None))
    now = timezone.now()
    for kind, standing in standings.items():
        rows = {row.subject: row for row in known if row.kind == kind}
        begin(kind, {subject: said for subject, said in standing.so.items() if subject not in rows}, now)
        for subject, row in rows.items():
            if subject not in standing.so and subject not in standing.undecided:
                _end(row, standing.well.get(subject), now)


def begin(kind: str, found: Mapping[str, core.Said], now: datetime | None = None) -> None:
    """Those that have not begun yet. The same of the same is told once an hour, later ones when
    that is over, if they still are so then."""
    if not found:
        return
    now = now or timezone.now()
    told = _told(kind, found)
    rows = [_row(kind, subject, said, now, told.get(subject)) for subject, said in found.items()]
    Notice.objects.bulk_create(rows, ignore_conflicts=True)  # another process may have been first
    for subject, said in found.items():
        log.warning("%s: %s: %s", kind, subject, said.sentence)


def of_kind(kind: str) -> dict[str, Notice]:
    """What stands, by subject."""
    return {row.subject: row for row in Notice.objects.filter(kind=kind, over_at=None)}


def _end(row: Notice, well: core.Said | None, now: datetime) -> None:
    """Who was told of the beginning hears of the end; who was not has nothing to hear."""
    with transaction.atomic():
        held = Notice.objects.select_for_update().filter(pk=row.pk, over_at=None).first()
        if held is None:
            return
        held.over_at = now
        if held.told_at is None:
            held.due_at = None
        held.save(update_fields=["over_at", "due_at"])
        kind = core.OVER.get(held.kind)
        if kind is not None and well is not None and held.told_at is not None:
            said = core.Said(well.sentence, well.command, {**well.detail, "since": held.at.isoformat()})
            over = _row(kind, held.subject, said, now, None)
            over.over_at = now
            over.save()
    if well is not None:
        log.info("%s is over: %s: %s", row.kind, row.subject, well.sentence)


def _told(kind: str, subjects: Collection[str]) -> dict[str, datetime]:
    """When each was told of last, within the time that counts."""
    since = timezone.now().timestamp() - core.ONCE_IN_S
    rows = Notice.objects.filter(kind=kind, told_at__gte=datetime.fromtimestamp(since, UTC))
    if len(subjects) <= 500:
        rows = rows.filter(subject__in=list(subjects))
    return dict(rows.order_by().values_list("subject").annotate(Max("told_at")))


def _row(kind: str, subject: str, said: core.Said, now: datetime, told: datetime | None) -> Notice:
    due = core.due_at(now.timestamp(), told.timestamp() if told else None)
    return Notice(
        kind=kind,
        subject=subject[:200],
        message=said.sentence,
        command=said.command[:300],
        detail=dict(said.detail),
        at=now,
        due_at=datetime.fromtimestamp(due, UTC),
    )


@dataclass(frozen=True, slots=True)
class Added:
    """`id` as `llmgw.cluster.webhooks` has it. `added` False: it was there already."""

    id: str
    to: str
    form: core.Form
    added: bool


def add_webhook(*, typed: str, actor: str) -> Added:
    """One webhook more in the settings, from what somebody typed; one that is there already stays as it is. Raises
    `Invalid`, `Conflict`."""
    form, url = core.typed(typed)
    if problem := core.url_problem(url):
        raise Invalid("bad_webhook", f"{problem}, with slack: or json: in front where it does not show which")
    settings = cluster_settings.in_force().notify
    host, id = core.host_of(url), core.id_of(url)
    if any(webhook.url == url for webhook in settings.webhooks):
        return Added(id, host, form, added=False)
    webhook = {"url": url} if form == core.form_of(url) else {"url": url, "format": form}
    said = cluster_settings.current()[1].get("notify", {}).get("webhooks", [])
    cluster_settings.put(path="notify.webhooks", value=[*said, webhook], actor=actor, note=f"a webhook at {host}")
    return Added(id, host, form, added=True)
