"""Taking down what runs have shown: how long a start took once it serves, the rest once it has served for a while."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import datetime, timedelta

import msgspec
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from agent.wire.shard import Profile, Took
from fleet import models
from fleet.core import learned as core
from fleet.selectors.learned import figure_of
from fleet.selectors.world import facts_of
from llmgw.cluster.actions import settings as cluster_settings

EVERY_S = 30.0
MOST = 200
"""Runs taken down at once."""
_last = 0.0


def note_when_due() -> None:
    global _last
    if time.monotonic() - _last >= EVERY_S:
        _last = time.monotonic()
        note(timezone.now())


def note(now: datetime) -> int:
    """Samples of the runs that have served long enough to have taken what they take; how many runs."""
    settled = now - timedelta(seconds=cluster_settings.in_force().fleet.healthy_s)
    news = Q(learned=None) | ~Q(learned=F("observed_incarnation"))
    rows = models.Shard.objects.filter(news, observed="ready", since__lte=settled, observed_incarnation__isnull=False)
    shards = list(rows.select_related("replica", "node").order_by("pk")[:MOST])
    if not shards:
        return 0
    with transaction.atomic():
        samples: dict[tuple[core.Key, str], list[float]] = defaultdict(list)
        for shard in shards:
            for kind, value in _samples(shard).items():
                samples[_key(shard), kind].append(value)
            models.Shard.objects.filter(pk=shard.pk).update(learned=shard.observed_incarnation)
        for (key, kind), values in samples.items():
            _add(key, kind, values)
    return len(shards)


def started(replica: models.Replica, now: datetime) -> None:
    """A replica that was placed here is ready: the next start will take about as long, once its weights are there."""
    if replica.placed_at is None:
        return
    shards = list(replica.shards.select_related("replica", "node").order_by("rank"))
    if shards:
        fetched = max(msgspec.convert(s.took, Took, strict=False).fetch_s or 0.0 for s in shards)
        took_s = max(0.0, (now - replica.placed_at).total_seconds() - fetched)
        with transaction.atomic():
            _add(_key(shards[0]), models.Learned.Kind.START, [took_s])
    replica.placed_at = None  # becoming ready once more is no start
    replica.save(update_fields=["placed_at"])


def _key(shard: models.Shard) -> core.Key:
    run = msgspec.convert(shard.replica.spec["profile"], Profile, strict=False)
    cards = {g.index: g for g in facts_of(shard.node).gpus or ()}
    first = cards.get(shard.devices[0]) if shard.devices else None
    gpu_class = (first.gpu_class or first.name or "") if first is not None else run.gpu_class or ""
    return core.key(run, shard.replica.spec["source"]["url"], gpu_class)


def _samples(shard: models.Shard) -> dict[str, float]:
    took = msgspec.convert(shard.took, Took, strict=False)
    found: dict[str, float] = {}
    if shard.memory_measured_bytes:
        found[models.Learned.Kind.MEMORY] = float(shard.memory_measured_bytes)
    if shard.devices_memory:
        found[models.Learned.Kind.GPU_MEMORY] = float(max(shard.devices_memory.values()))
    if took.fetch_s:
        found[models.Learned.Kind.FETCH] = took.fetch_s
    return found


def _add(key: core.Key, kind: str, values: list[float]) -> None:
    row, _ = models.Learned.objects.select_for_update().get_or_create(**msgspec.to_builtins(key), kind=kind)
    figure = figure_of(row)
    for value in values:
        figure = figure.added(value)
    for name, value in msgspec.to_builtins(figure).items():
        setattr(row, name, value)
    if kind in (models.Learned.Kind.FETCH, models.Learned.Kind.START):
        row.recent = [*row.recent, *values][-core.KEPT :]
    row.save()
