"""Reading the traffic: single requests, recent ones, use by day, and what goes on now. For commands, API, portal."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any

import redis
from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from catalog.selectors import OutsideKey
from gateway.control.redis import client
from gateway.models import Usage
from llmgw.cluster.errors import NotFound

LIVE = "llmgw:live:*"
_LISTED = (
    "request_id",
    "at",
    "model",
    "outcome",
    "status",
    "prompt_tokens",
    "completion_tokens",
    "ttft_ms",
    "duration_ms",
)


def request(request_id: str) -> dict[str, Any]:
    """Everything that is known of one request; raises `NotFound`."""
    row = Usage.objects.filter(request_id=request_id).first()
    if row is None:
        raise NotFound(
            "no_such_request",
            f"there is no request {request_id}: its row comes about a second after its answer",
            "llmgw request list",
        )
    return {field.attname: getattr(row, field.attname) for field in Usage._meta.concrete_fields}


def recent(
    *, limit: int = 50, model: str | None = None, outcome: str | None = None, project: str | None = None
) -> list[dict[str, Any]]:
    """The newest requests first."""
    return list(requests(model=model, outcome=outcome, project=project).values(*_LISTED)[:limit])


def requests(
    *, model: str | None = None, outcome: str | None = None, project: str | None = None, key: str | None = None
) -> QuerySet[Usage]:
    given = {"model": model, "outcome": outcome, "project": project, "key": key}
    return Usage.objects.filter(**{name: value for name, value in given.items() if value})


def by_day(
    *,
    days: int = 30,
    person: str | None = None,
    project: str | None = None,
    key: str | None = None,
    model: str | None = None,
    now: datetime | None = None,
) -> list[dict[str, Any]]:
    """Use of each of the last `days` days in the cluster's zone, oldest first, days without any too. Names are
    public ids."""
    today = timezone.localtime(now or timezone.now()).date()
    first = today - timedelta(days=days - 1)
    given = {"person": person, "project": project, "key": key, "model": model}
    rows = Usage.objects.filter(
        at__gte=_midnight(first), **{name: value for name, value in given.items() if value}
    ).order_by()
    found: dict[Any, dict[str, Any]] = {
        row["day"]: dict(row)
        for row in rows.annotate(day=TruncDate("at"))
        .values("day")
        .annotate(
            requests=Count("pk"),
            prompt_tokens=Sum("prompt_tokens", default=0),
            completion_tokens=Sum("completion_tokens", default=0),
            cached_tokens=Sum("cached_tokens", default=0),
        )
    }
    empty: dict[str, Any] = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}
    return [found.get(day) or {"day": day, **empty} for day in (first + timedelta(days=n) for n in range(days))]


def live() -> dict[str, Any] | None:
    """What goes on now, summed over the edges: `models` (in flight and totals by name), `tokens_per_s` by name,
    `edges`. None where no edge has reported within five seconds. Raises `redis.RedisError`."""
    found = _documents()
    if not found:
        return None
    models: dict[str, dict[str, int]] = {}
    rates: dict[str, float] = {}
    for document in found:
        for name, figures in document["models"].items():
            total = models.setdefault(name, {})
            for figure, value in figures.items():
                total[figure] = total.get(figure, 0) + value
        for name, rate in document["tokens_per_s"].items():
            rates[name] = rates.get(name, 0.0) + rate
    return {"edges": len(found), "models": models, "tokens_per_s": rates}


def _documents() -> list[dict[str, Any]]:
    """What each edge has told within the last seconds."""
    keys = list(client().scan_iter(LIVE, count=500))
    return [json.loads(data) for data in client().mget(keys) if data] if keys else []


_WORST = ("external_key_unreadable", "external_key_refused", "external_key_resting", "external_key_loose", "")


def outside() -> dict[str, tuple[OutsideKey, ...]]:
    """How each key of each external model stands, over the edges: the worst that one says; empty where none tells."""
    try:
        found = _documents()
    except redis.RedisError:
        return {}
    told: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for document in found:
        for model, keys in document.get("external", {}).items():
            for key in keys:
                told.setdefault(model, {}).setdefault(key["endpoint"], []).append(key)
    return {model: tuple(_outside_key(said) for said in keys.values()) for model, keys in told.items()}


def _outside_key(said: list[dict[str, Any]]) -> OutsideKey:
    worst = min(said, key=lambda k: _WORST.index(k["code"]))
    usable = any(k["code"] in ("", "external_key_loose", "external_key_resting") for k in said)
    return OutsideKey(worst["endpoint"], worst["code"], worst["sentence"], worst["since"], usable)


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, datetime.min.time()))
