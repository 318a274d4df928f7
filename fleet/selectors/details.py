"""Nodes, replicas and certificates as plain dicts: one reading for commands, the API and the portal.

Sizes are bytes, times are datetimes, an unknown figure is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.utils import timezone

from agent.wire.facts import GpuFacts, PcieFacts, device_name
from agent.wire.shard import Profile
from fleet import models
from fleet.core import learned as core_learned
from fleet.core.facility import location
from fleet.core.learned import Figure, warning
from fleet.core.replica import State
from fleet.core.sizes import span
from fleet.selectors import engines, figures, learned, silent
from fleet.selectors.hearing import ears
from fleet.selectors.world import facts_of, labels_of, stamp
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import NotFound


def nodes() -> list[dict[str, Any]]:
    """Every node, in the order of their ids."""
    now = timezone.now()
    told = _Told(now)
    counts: dict[int, list[str]] = defaultdict(list)
    reserved: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for s in models.Shard.objects.select_related("replica"):
        counts[s.node_id].append(s.replica.state)
        if s.replica.state != State.PARKED:
            reserved[s.node_id].append((s.cpu_cores, s.memory_bytes))
    return [_node(n, told, counts[n.pk], reserved[n.pk]) for n in models.Node.objects.all()]


def node(node_id: str) -> dict[str, Any]:
    """One node in full: its facts, its replicas, what it runs that nobody knows. Raises `NotFound`."""
    row = models.Node.objects.filter(node_id=node_id).first()
    if row is None:
        raise NotFound("no_such_node", f"there is no node {node_id}", "llmgw node list")
    shards = list(row.shards.select_related("replica"))
    states = [s.replica.state for s in shards]
    reserved = [(s.cpu_cores, s.memory_bytes) for s in shards if s.replica.state != State.PARKED]
    facts = facts_of(row)
    strays = row.strays.all()
    moving = figures.of_cards(row, facts.gpus or (), timezone.now())
    return {
        **_node(row, _Told(timezone.now()), states, reserved),
        "hostname": facts.hostname,
        "os": facts.os,
        "arch": facts.arch,
        "cpu_model": facts.cpu_model,
        "vector_extensions": list(facts.vector_extensions) if facts.vector_extensions is not None else None,
        "disk_bytes": facts.disk_bytes,
        "driver": facts.driver,
        "protocol": row.protocol,
        "boot_id": facts.boot_id,
        "connected_at": row.connected_at,
        "reported_at": row.reported_at,
        "joined_at": row.created_at,
        "generation": row.generation,
        "taken_generation": row.taken_generation,
        "installs": facts.installs,
        "engine_details": [{"name": r["engine"], **r} for r in engines.of_node(row, facts)],
        "gpu_details": [gpu(g) | moving[g.index] for g in facts.gpus or ()],
        "rdma_ports": None
        if facts.rdma_ports is None
        else [
            {
                "port": f"{p.adapter}/{p.port}",
                "kind": p.kind,
                "active": p.active,
                "rate_gbps": p.rate_gbps,
                "netdev": p.netdev,
                "numa_node": p.numa_node,
                "gid_index": p.gid_index,
                "subnet_manager": p.subnet_manager,
                "errors": p.errors,
            }
            for p in facts.rdma_ports
        ],
        "running": replicas(node=node_id),
        "strays": [
            {"shard": s.shard_id, "model": s.model, "state": s.state, "foreign": s.foreign, "since": s.seen_at}
            for s in strays
        ],
    }


def gpu(g: GpuFacts) -> dict[str, Any]:
    """A device, with the figures that it was reported with."""
    return {
        "index": g.index,
        "device": device_name(g.index),
        "name": g.name,
        "gpu_class": g.gpu_class,
        "memory_bytes": g.memory_bytes,
        **{name: getattr(g, name) for name in figures.MOVING},
        "power_limit_w": g.power_limit_w,
        "numa_node": g.numa_node,
        "pcie": _pcie(g.pcie),
        "nvlinks": {str(link.peer): link.links for link in g.nvlinks} if g.nvlinks is not None else None,
        "switched": g.switched,
        "adapters": g.adapters,
        "ecc_uncorrected": g.ecc_uncorrected,
        "mig_profile": g.mig_profile,
        "problem": g.problem,
    }


def _pcie(link: PcieFacts | None) -> str | None:
    """`Gen5 x16`, and `Gen4 x8 / Gen5 x16` where the card could do more than its slot does."""
    if link is None or link.width is None:
        return None
    runs = _lanes(link.generation, link.width)
    could = _lanes(link.card_generation or link.generation, link.card_width or link.width)
    return runs if runs == could else f"{runs} / {could}"


def _lanes(generation: int | None, width: int) -> str:
    return f"x{width}" if generation is None else f"Gen{generation} x{width}"


def replicas(model: str | None = None, node: str | None = None) -> list[dict[str, Any]]:
    """Every replica, or a model's, or a node's."""
    rows = models.Replica.objects.prefetch_related("shards__node")
    if model is not None:
        rows = rows.filter(model=model)
    if node is not None:
        rows = rows.filter(shards__node__node_id=node).distinct()
    return [_replica(r) for r in rows]


def replica(public_id: str) -> dict[str, Any]:
    """One replica in full. Raises `NotFound`."""
    row = models.Replica.objects.prefetch_related("shards__node").filter(public_id=public_id).first()
    if row is None:
        raise NotFound("no_such_replica", f"there is no replica {public_id}", "llmgw replica list")
    ranks = list(row.shards.all())
    shown = _learned_of(row, ranks[0]) if row.spec and ranks else {}
    return {
        **_replica(row),
        "predicted": learned.told(shown),
        "warnings": [
            f"rank {s.rank} on {s.node.node_id}: {reason.sentence}" if len(ranks) > 1 else reason.sentence
            for s in ranks
            if (reason := warning(s.memory_bytes, s.memory_measured_bytes, shown.get(learned.Kind.MEMORY)))
        ],
        "spec": row.spec,
        "shards": [
            {
                "rank": s.rank,
                "node": s.node.node_id,
                "port": s.port,
                "devices": s.devices,
                "observed": s.observed or None,
                "reason": s.reason,
                "last_words": s.last_words,
                "pid": s.pid,
                "progress": s.progress,
                "memory_bytes": s.memory_measured_bytes,
                "devices_memory": {device_name(int(d)): held for d, held in s.devices_memory.items()},
                "took": s.took,
                "reserved_memory_bytes": s.memory_bytes,
                "reserved_cpu_cores": s.cpu_cores,
            }
            for s in row.shards.all()
        ],
    }


def _learned_of(row: models.Replica, first: models.Shard) -> dict[str, Figure]:
    """What runs of its kind have shown here."""
    run = msgspec.convert(row.spec["profile"], Profile, strict=False)
    cards = {g.index: g for g in facts_of(first.node).gpus or ()}
    card = cards.get(first.devices[0]) if first.devices else None
    gpu_class = (card.gpu_class or card.name or "") if card is not None else run.gpu_class or ""
    return learned.of(core_learned.key(run, row.spec["source"]["url"], gpu_class))


def events(replica: str | None = None, model: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """The history of a replica or a model, newest first; it outlives the replica."""
    rows = models.ReplicaEvent.objects.all()
    if replica is not None:
        rows = rows.filter(replica=replica)
    if model is not None:
        rows = rows.filter(model=model)
    return [dict(r) for r in rows.values("at", "replica", "model", "node", "state", "reason")[:limit]]


def certificates() -> list[dict[str, Any]]:
    """Every certificate that was issued, newest first."""
    now = timezone.now()
    return [
        {
            "serial": c.serial,
            "node": c.common_name,
            "state": "revoked" if c.revoked_at else "expired" if c.not_after < now else "valid",
            "expires": c.not_after,
            "issued": c.created_at,
            "revoked": c.revoked_at,
            "reason": c.reason,
        }
        for c in models.Certificate.objects.all()
    ]


@dataclass(frozen=True, slots=True)
class _Stands:
    """How a node is: one word, and a sentence where there is something to say."""

    state: str
    reason: str = ""


class _Told:
    """What a node's state is judged by."""

    def __init__(self, now: datetime) -> None:
        self.now = now.timestamp()
        self.lost_s = cluster_settings.in_force().fleet.node_lost_s
        self.links = ears(self.now)

    def state(self, row: models.Node) -> _Stands:
        seen = stamp(row.last_seen)
        ago = f"last heard {span(self.now - seen)} ago" if seen is not None else "never heard"
        if row.refused and not row.connected:
            return _Stands("refused", row.refused)
        if self.links.lost(link=row.link, last_seen=seen, lost_s=self.lost_s, now=self.now):
            return _Stands("lost", ago)
        if self.links.since is None:
            return _Stands("unknown", "the agent link does not run")
        if not row.connected:
            return _Stands("away", ago)
        if row.draining:
            return _Stands("draining")
        if row.cordoned:
            return _Stands("cordoned")
        if not row.settled:
            return _Stands("unsettled", "it runs engines that nobody has decided about")
        return _Stands("ready")


def _node(row: models.Node, told: _Told, states: Iterable[str], reserved: list[tuple[int, int]]) -> dict[str, Any]:
    facts = facts_of(row)
    stands = told.state(row)
    where = location(labels_of(row, facts))
    found = list(states)
    return {
        "node": row.node_id,
        "state": stands.state,
        "reason": stands.reason,
        "location": str(where),
        "pdus": list(where.pdus),
        "address": facts.address,
        "connected": row.connected,
        "cordoned": row.cordoned,
        "draining": row.draining,
        "replicas": len(found),
        "ready": sum(s in (State.READY, State.DRAINING) for s in found),
        "cpu_count": facts.cpu_count,
        "cpu_reserved": sum(c for c, _ in reserved),
        "memory_bytes": facts.memory_bytes,
        "memory_free_bytes": row.memory_free_bytes,
        "memory_reserved_bytes": sum(m for _, m in reserved),
        "disk_free_bytes": row.disk_free_bytes,
        "load_1m": row.load_1m,
        "gpus": None if facts.gpus is None else len(facts.gpus),
        "engines": None if facts.engines is None else sorted({e.name for e in facts.engines if not e.problem}),
        "labels": labels_of(row, facts),
        "agent_version": row.agent_version or None,
        "last_seen": row.last_seen,
    }


def _replica(row: models.Replica) -> dict[str, Any]:
    shards = list(row.shards.all())
    first = shards[0] if shards else None
    known = [s.progress for s in shards if s.progress is not None]
    reason, code = row.reason, row.reason_code
    if (waits := silent.left(row)) is not None:
        reason, code = "; ".join(filter(None, (reason, waits.sentence))), silent.CODE
    return {
        "replica": row.public_id,
        "model": row.model,
        "profile": row.profile,
        "state": row.state,
        "reason": reason,
        "reason_code": code,
        "node": first.node.node_id if first else None,
        "nodes": [s.node.node_id for s in shards],
        "fabric": row.fabric or None,
        "port": first.port if first else None,
        "engine": row.spec.get("profile", {}).get("engine"),
        "progress": min(known, default=None),
        "failures": row.failures,
        "next_try_at": row.next_try_at,
        "incarnation": row.incarnation,
        "stale": row.stale,
        "adopted": row.adopted,
        "since": row.state_since,
        "ready_at": row.ready_at,
        "created_at": row.created_at,
    }
