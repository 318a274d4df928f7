"""Writing down who asked, seldom: what must outlive the gateways' words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.db import transaction

from fleet import models
from fleet.core.world import Demand

WRITTEN_S = 10.0
"""As much may be lost of when somebody last asked."""
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


def tidy(now: datetime) -> None:
    models.AskedHour.objects.filter(hour__lt=now - KEPT_HOURS).delete()
