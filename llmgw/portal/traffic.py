"""Use of the models as pages show it: sums over days and by model; what goes on now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

import redis
from django.db.models import Count, Q, Sum
from django.utils import timezone

from gateway import selectors
from gateway.models import Usage


@dataclass(frozen=True, slots=True)
class Used:
    """What was used of one model; `unknown` requests left no count of tokens."""

    model: str
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    unknown: int = 0


def by_model(first: date, person: str | None = None) -> list[Used]:
    """One entry a model since the local day `first` began, the most tokens first."""
    rows = Usage.objects.filter(at__gte=timezone.make_aware(datetime.combine(first, time())))
    if person is not None:
        rows = rows.filter(person=person)
    found = (
        rows.order_by()
        .values("model")
        .annotate(
            requests=Count("pk"),
            prompt=Sum("prompt_tokens", default=0),
            completion=Sum("completion_tokens", default=0),
            unknown=Count("pk", filter=Q(prompt_tokens=None) | Q(completion_tokens=None)),
        )
    )
    return sorted((Used(**row) for row in found), key=lambda u: (-u.prompt - u.completion, u.model))


def total(used: list[Used]) -> Used:
    return Used(
        "",
        sum(u.requests for u in used),
        sum(u.prompt for u in used),
        sum(u.completion for u in used),
        sum(u.unknown for u in used),
    )


@dataclass(frozen=True, slots=True)
class Now:
    """What goes on now. None: no edge has reported within its five seconds, or Redis is away."""

    in_flight: int | None = None
    tokens_per_s: float | None = None
    models: dict[str, dict[str, Any]] | None = None


def now() -> Now:
    try:
        found = selectors.live()
    except redis.RedisError:
        return Now()
    return added(found) if found is not None else Now()


def added(live: dict[str, Any]) -> Now:
    """Pure: the sums of what the edges report, and each model's share."""
    names = {*live["models"], *live["tokens_per_s"]}
    models = {
        name: {
            "in_flight": live["models"].get(name, {}).get("in_flight", 0),
            "tokens_per_s": live["tokens_per_s"].get(name, 0.0),
        }
        for name in names
    }
    return Now(sum(m["in_flight"] for m in models.values()), sum(m["tokens_per_s"] for m in models.values()), models)
