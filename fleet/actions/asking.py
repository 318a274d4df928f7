"""Writing down who asked, seldom, and how long starts take: what must outlive the gateways' words and the replicas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.db import transaction

from fleet import models
from fleet.core.world import Demand

WRITTEN_S = 10.0
"""As much may be lost of when somebody last asked."""
KEPT_STARTS = 5
KEPT_HOURS = timedelta(weeks=5)
_written: dict[str, float] = {}
"""By this process, so that a pass asks the store for nothing that it has just told it."""


def asked(demand: Mapping[str, Demand]) -> None:
    """What the gateways said of when each model was last asked for."""
    news = {
        model: said.last_asked
        for model, said in demand.items()
        if said.last_asked is not None and said.last_asked - _written.get(model, 0.0) >= WRITTEN_S
    }
    if not news:
        return
    known = dict(models.LastAsked.objects.filter(model__in=news).values_list("model", "at"))
    for model, at in news.items():
        moment = datetime.fromtimestamp(at, UTC)
        if model not in known or known[model] < moment:
            with transaction.atomic():
                models.LastAsked.objects.update_or_create(model=model, defaults={"at": moment})
                hour = moment.replace(minute=0, second=0, microsecond=0)
                models.AskedHour.objects.get_or_create(model=model, hour=hour)
        _written[model] = at


def started(replica: models.Replica, now: datetime) -> None:
    """A replica that was placed here is ready: the next start will take about as long."""
    if replica.placed_at is None:
        return
    node = replica.shards.select_related("node").first()
    took_s = max(0.0, (now - replica.placed_at).total_seconds())
    models.Start.objects.create(model=replica.model, node=node.node.node_id if node else "", took_s=took_s)
    old = models.Start.objects.filter(model=replica.model).values_list("pk", flat=True)[KEPT_STARTS:]
    models.Start.objects.filter(pk__in=list(old)).delete()
    replica.placed_at = None  # becoming ready once more is no start
    replica.save(update_fields=["placed_at"])


def tidy(now: datetime) -> None:
    models.AskedHour.objects.filter(hour__lt=now - KEPT_HOURS).delete()
