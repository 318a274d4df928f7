"""Rows to the planner's values, in a fixed number of queries however large the fleet is."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings as django_settings
from django.db.models import Sum

from agent.wire.facts import NodeFacts
from agent.wire.shard import ShardState
from catalog import selectors as catalog
from fleet import models
from fleet.core import agents
from fleet.core import world as core
from fleet.selectors import demand, kept, learned
from fleet.selectors.hearing import ears
from llmgw import keys, secrets
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.models import Change
from llmgw.zones import known

PARTS = ("fleet", "catalog", "policies")
"""The versions that a plan rests on."""


def load_world(now: float) -> core.World:
    """The fleet as it stands. The version is read first: what changes later makes a plan stale."""
    version = fleet_version()
    settings = cluster_settings.in_force()
    fleet = settings.fleet
    heard = ears(now)
    link_since = heard.since
    views, reported_at = kept.nodes(heard, fleet.node_lost_s, now)
    names = {pk: view.id for pk, view in views.items()}
    replicas = kept.replicas(kept.shards(names))
    strays = tuple(stray_view(s, names[s.node_id]) for s in models.Stray.objects.all())
    synced = core.synced(
        link_since=link_since,
        reported_at=tuple(reported_at),
        strange=link_since is not None
        and now - link_since < fleet.sync_grace_s
        and _strange(strays, datetime.fromtimestamp(link_since, UTC)),
        grace_s=fleet.sync_grace_s,
        now=now,
    )
    zone = cluster_settings.time_zone(settings)
    told = demand.read(now)
    return core.World(
        tuple(views.values()),
        replicas,
        strays,
        synced,
        fleet,
        serving=settings.serving,
        shown=learned.shown(),
        facility=settings.facility,
        demand=told.demand,
        heard=told.heard,
        quiet=told.quiet,
        busy=told.busy,
        expected=demand.expected(now, known(zone)),
        time_zone=zone,
        version=version,
    )


def _strange(strays: Iterable[core.StrayView], since: datetime) -> bool:
    """Whether engines that another store started were heard of since then, also those that were adopted."""
    adopted = models.Replica.objects.filter(adopted=True, created_at__gte=since)
    return any(s.foreign for s in strays) or adopted.exists()


def load_wanted() -> tuple[core.WantedModel, ...]:
    """Every model that people asked for, stored or declared."""
    return tuple(
        core.WantedModel(e.definition, e.stopped, e.restarted_at, e.in_place)
        for e in catalog.entries()
        if e.definition is not None
    )


def fleet_version() -> int:
    """Moves whenever anything moves that a plan rests on."""
    return int(Change.objects.filter(name__in=PARTS).aggregate(total=Sum("version"))["total"] or 0)


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
        seen=row.seen_at.timestamp(),
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


def about(nodes: Iterable[models.Node]) -> dict[str, agents.About | None]:
    """By node id: what of it decides about its engines; None of one that has not told of itself."""
    found: dict[str, agents.About | None] = {}
    for node in nodes:
        facts = facts_of(node)
        classes = frozenset(g.gpu_class for g in facts.gpus or () if g.gpu_class)
        heard = node.reported_at is not None
        found[node.node_id] = agents.About(classes, labels_of(node, facts), node.engine_builds) if heard else None
    return found


def stamp(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None


def builtins(value: Any) -> Any:
    return msgspec.to_builtins(value)


@functools.cache
def _engine_secret() -> str:
    return secrets.read_or_make(django_settings.MACHINE.secrets_dir, "engine")
