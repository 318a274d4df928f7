"""What runs now, for the line at the bottom of `up` and for `llmgw status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings
from django.db import Error, close_old_connections
from django.db.models import Count

from fleet import selectors as fleet
from fleet.models import Node, Replica
from gateway import selectors as gateway
from llmgw.cluster.commands import store_sentence
from llmgw.up.supervisor import leftovers


@dataclass(frozen=True, slots=True)
class OfModel:
    """Where a model is on its way to serving; `progress` 0..1 while weights come in."""

    ready: bool
    parked: bool
    sentence: str
    progress: float | None = None


def of_model(model: str) -> OfModel:
    rows = list(Replica.objects.filter(model=model).prefetch_related("shards__node"))
    if any(r.state == Replica.State.READY and not _gone(r) for r in rows):
        return OfModel(True, False, "ready")
    if not rows:
        return OfModel(False, False, "waiting to be placed")
    row = rows[0]
    shard = next(iter(row.shards.all()), None)
    sentence = row.reason or (shard.reason if shard else "") or str(row.get_state_display())
    return OfModel(False, row.state == Replica.State.PARKED, sentence, shard.progress if shard else None)


def _gone(replica: Replica) -> bool:
    """Its row says ready, and its node has not reported since this control plane started."""
    nodes = [shard.node for shard in replica.shards.all()]
    return any(
        not n.connected or n.reported_at is None or (n.connected_at is not None and n.reported_at < n.connected_at)
        for n in nodes
    )


def line() -> str:
    """`2 of 2 replicas ready · 1 node · 3 requests now · 41 tokens/s`; a store that is away for a moment is told
    in its place, for nothing else depends on this line."""
    try:
        return _line()
    except Error as e:
        close_old_connections()
        return store_sentence(e)


def _line() -> str:
    states = dict(Replica.objects.values_list("state").annotate(n=Count("id")))
    nodes = Node.objects.filter(connected=True).count()
    live = _live()
    parts = [
        f"{states.get(Replica.State.READY, 0)} of {sum(states.values())} replicas ready",
        f"{nodes} node{'s' if nodes != 1 else ''}",
    ]
    if live is not None:
        now = sum(m["in_flight"] for m in live["models"].values())
        rate = sum(live["tokens_per_s"].values())
        parts += [f"{now} request{'s' if now != 1 else ''} now", f"{rate:.0f} tokens/s"]
    return " · ".join(parts)


def gather() -> dict[str, Any]:
    """Everything that `llmgw status` shows."""
    return {
        "portal": settings.MACHINE.portal_url,
        "system": fleet.system(),
        "components": sorted({name for _, name in leftovers(settings.MACHINE.home)}),
        "nodes": fleet.nodes(),
        "replicas": fleet.replicas(),
        "live": _live(),
    }


def _live() -> dict[str, Any] | None:
    try:
        return gateway.live()
    except (redis.exceptions.RedisError, OSError):
        return None
