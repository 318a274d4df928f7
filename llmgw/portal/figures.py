"""Live figures of the traffic, from what each edge puts into Redis each second; None while nobody says anything."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any

import redis
from django.conf import settings

PATTERN = "llmgw:live:*"


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over every edge. None: no edge has reported within its five seconds."""

    edges: int = 0
    in_flight: int | None = None
    tokens_per_s: float | None = None
    models: dict[str, dict[str, Any]] = field(default_factory=dict)


def read() -> Figures:
    """What the edges say now."""
    try:
        client = _client()
        names = list(client.scan_iter(PATTERN, count=500))
        values = [v for v in client.mget(names) if v] if names else []
    except redis.RedisError:
        return Figures()
    return add([json.loads(v) for v in values])


def add(reports: list[dict[str, Any]]) -> Figures:
    """Pure: one edge's report added to the next."""
    if not reports:
        return Figures()
    models: dict[str, dict[str, Any]] = {}
    for report in reports:
        for name, figures in report.get("models", {}).items():
            model = models.setdefault(name, {"in_flight": 0, "tokens_per_s": 0.0})
            model["in_flight"] += figures.get("in_flight", 0)
        for name, speed in report.get("tokens_per_s", {}).items():
            model = models.setdefault(name, {"in_flight": 0, "tokens_per_s": 0.0})
            model["tokens_per_s"] += speed
    return Figures(
        edges=len(reports),
        in_flight=sum(m["in_flight"] for m in models.values()),
        tokens_per_s=sum(m["tokens_per_s"] for m in models.values()),
        models=models,
    )


@functools.cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.MACHINE.redis_url, socket_connect_timeout=1, socket_timeout=1)
