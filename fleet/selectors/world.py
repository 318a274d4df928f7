"""Rows to the planner's values, in a fixed number of queries however large the fleet is."""

from __future__ import annotations

import functools
from collections import defaultdict
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings as django_settings
from django.db.models import Sum

from agent.wire.facts import NodeFacts
from agent.wire.shard import Fabric, Profile, ShardState, Source
from catalog import selectors as catalog
from fleet import models
from fleet.core import world as core
from fleet.core.replica import State
from fleet.selectors import demand
from llmgw import keys, secrets
from llmgw.cluster import leases
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.models import Change
from llmgw.zones import known

LINK_LEASE = "fleet.link"
"""What each link process holds while it is up, with its host's name after a colon."""
PARTS = ("fleet", "catalog", "policies")
"""The versions that a plan rests on."""


def load_world(now: float) -> core.World:
    """The fleet as it stands. The version is read first: what changes later makes a plan stale."""
    version = fleet_version()
    settings = cluster_settings.in_force()
    fleet = settings.fleet
    link_since = leases.oldest_start(LINK_LEASE, now)
    nodes = list(models.Node.objects.all())
    shards: dict[int, list[core.ShardView]] = defaultdict(list)
    names = {n.pk: n.node_id for n in nodes}
    for row in models.Shard.objects.order_by("rank"):
        shards[row.replica_id].append(shard_view(row, names[row.node_id]))
    replicas = tuple(replica_view(r, tuple(shards[r.pk])) for r in models.Replica.objects.order_by("id"))
    strays = tuple(stray_view(s, names[s.node_id]) for s in models.Stray.objects.all())
    synced = core.synced(
        link_since=link_since,
        reported_at=tuple(stamp(n.reported_at) for n in nodes),
        grace_s=fleet.sync_grace_s,
        now=now,
    )
    views = tuple(node_view(n, link_since, fleet.node_lost_s, now) for n in nodes)
    zone = cluster_settings.time_zone(settings)
    asked, heard = demand.read(now)
    return core.World(
        views,
        replicas,
        strays,
        synced,
        fleet,
        serving=settings.serving,
        demand=asked,
        heard=heard,
        expected=demand.expected(now, known(zone)),
        starts=demand.starts(),
        time_zone=zone,
        version=version,
    )


def load_wanted() -> tuple[core.WantedModel, ...]:
    """Every model that people asked for, stored or declared."""
    return tuple(core.WantedModel(definition, stopped) for definition, stopped in catalog.wanted())


def fleet_version() -> int:
    """Moves whenever anything moves that a plan rests on."""
    return int(Change.objects.filter(name__in=PARTS).aggregate(total=Sum("version"))["total"] or 0)


def node_view(node: models.Node, link_since: float | None, lost_s: float, now: float) -> core.NodeView:
    facts = facts_of(node)
    reported_at = stamp(node.reported_at)
    return core.NodeView(
        id=node.node_id,
        facts=facts,
        labels=labels_of(node, facts),
        cordoned=node.cordoned,
        draining=node.draining,
        connected=node.connected,
        reported=link_since is not None and reported_at is not None and reported_at >= link_since,
        lost=core.lost(link_since=link_since, last_seen=stamp(node.last_seen), lost_s=lost_s, now=now),
        memory_free_bytes=node.memory_free_bytes,
        disk_free_bytes=node.disk_free_bytes,
        settled=node.settled,
        foreign={int(device): held for device, held in node.foreign.items()},
    )


def replica_view(row: models.Replica, shards: tuple[core.ShardView, ...]) -> core.ReplicaView:
    placed = row.spec or {}
    return core.ReplicaView(
        id=row.public_id,
        model=row.model,
        state=State(row.state),
        since=stamp(row.state_since) or stamp(row.created_at) or 0.0,
        profile=row.profile,
        run=msgspec.convert(placed["profile"], Profile, strict=False) if placed else None,
        source=msgspec.convert(placed["source"], Source, strict=False) if placed else None,
        shards=shards,
        failures=row.failures,
        next_try_at=stamp(row.next_try_at),
        incarnation=row.incarnation,
        fabric=row.fabric,
        meeting_port=row.meeting_port,
        stale=row.stale,
        reason_code=row.reason_code,
        reason=row.reason,
        held_by=row.held_by,
        free_at=stamp(row.free_at),
        created=stamp(row.created_at) or 0.0,
    )


def shard_view(row: models.Shard, node: str) -> core.ShardView:
    return core.ShardView(
        rank=row.rank,
        node=node,
        port=row.port,
        devices=tuple(row.devices),
        cpu_cores=row.cpu_cores,
        memory_bytes=row.memory_bytes,
        memory_measured_bytes=row.memory_measured_bytes,
        devices_memory={int(device): held for device, held in row.devices_memory.items()},
        observed=ShardState(row.observed) if row.observed else None,
        address=row.node_address,
        link=msgspec.convert(row.link, Fabric, strict=False) if row.link else None,
    )


def stray_view(row: models.Stray, node: str) -> core.StrayView:
    return core.StrayView(
        node=node,
        shard_id=row.shard_id,
        replica_id=row.replica_id,
        model=row.model,
        state=ShardState(row.state),
        port=row.port,
        fingerprint=row.fingerprint or None,
        incarnation=row.incarnation,
        foreign=row.foreign,
        dismissed=row.dismissed,
        key=engine_key(row.replica_id),
    )


def engine_key(replica: str) -> str:
    """The key that only the router and this replica's engine hold."""
    return keys.engine_key(_engine_secret(), replica)


def facts_of(node: models.Node) -> NodeFacts:
    """The last full report; what a newer agent says that this version does not know is left out."""
    return msgspec.convert(node.facts or {}, NodeFacts, strict=False)


def labels_of(node: models.Node, facts: NodeFacts) -> dict[str, str]:
    return {**(facts.labels or {}), **(node.labels or {})}


def stamp(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None


def builtins(value: Any) -> Any:
    return msgspec.to_builtins(value)


@functools.cache
def _engine_secret() -> str:
    return secrets.read_or_make(django_settings.MACHINE.secrets_dir, "engine")
