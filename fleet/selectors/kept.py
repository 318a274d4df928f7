"""The planner's values, made of rows once: a row that reads as it did in the pass before gives the same value again.

A thousand nodes and five thousand replicas are read every two seconds, and hardly any of them has changed. Columns come
as the store writes them (JSON and times as text), and what is compared is the whole row, so that nothing can be stale.
Only a node's facts, which are large, are known by the time of the report that told them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db.models import F, IntegerField, QuerySet, TextField
from django.db.models.functions import Cast

from agent.wire.facts import NodeFacts
from agent.wire.shard import Fabric, Profile, ShardState, Source
from fleet import models
from fleet.core import world as core
from fleet.core.hearing import Ears
from fleet.core.replica import State

_Row = tuple[Any, ...]
_facts: dict[int, tuple[str, NodeFacts]] = {}
"""By node: when they were told, and they."""
_nodes: dict[int, tuple[_Row, core.NodeView]] = {}
_shards: dict[int, tuple[_Row, core.ShardView]] = {}
_replicas: dict[int, tuple[_Row, tuple[core.ShardView, ...], core.ReplicaView]] = {}
_specs: dict[str, tuple[Profile | None, Source | None]] = {}


def _text(name: str) -> Cast:
    return Cast(F(name), TextField())


def _number(name: str) -> Cast:
    return Cast(F(name), IntegerField())


def nodes(ears: Ears, lost_s: float, now: float) -> tuple[dict[int, core.NodeView], list[float | None]]:
    """Every node by its row, in the order of their ids, and when each reported last. In two queries."""
    global _nodes
    rows = list(
        models.Node.objects.order_by("node_id").values_list(
            "pk",
            "node_id",
            _text("reported_at"),
            _text("labels"),
            _text("foreign"),
            _number("cordoned"),
            _number("draining"),
            _number("connected"),
            _number("settled"),
            "memory_free_bytes",
            "disk_free_bytes",
            _text("last_seen"),
            "link",
        )
    )
    facts = _facts_of({row[0]: row[2] for row in rows})
    found: dict[int, tuple[_Row, core.NodeView]] = {}
    for row in rows:
        known = _nodes.get(row[0])
        reported_at = _stamp(row[2])
        lost = ears.lost(link=row[12], last_seen=_stamp(row[11]), lost_s=lost_s, now=now)
        reported = ears.since is not None and reported_at is not None and reported_at >= ears.since
        key = (*row[:11], lost, reported, id(facts[row[0]]))
        if known is not None and known[0] == key:
            found[row[0]] = known
            continue
        said = facts[row[0]]
        view = core.NodeView(
            id=row[1],
            facts=said,
            labels={**(said.labels or {}), **msgspec.json.decode(row[3])},
            cordoned=bool(row[5]),
            draining=bool(row[6]),
            connected=bool(row[7]),
            reported=reported,
            lost=lost,
            memory_free_bytes=row[9],
            disk_free_bytes=row[10],
            settled=bool(row[8]),
            foreign={int(device): held for device, held in msgspec.json.decode(row[4]).items()},
        )
        found[row[0]] = (key, view)
    _nodes = found
    return {pk: view for pk, (_, view) in found.items()}, [_stamp(row[2]) for row in rows]


def shards(
    names: Mapping[int, str], some: QuerySet[models.Shard] | None = None
) -> dict[int, tuple[core.ShardView, ...]]:
    """By replica, in the order of their ranks: of every one, or of `some`. `names`: of the nodes. In one query."""
    global _shards
    rows = (
        (models.Shard.objects.all() if some is None else some)
        .order_by("rank")
        .values_list(
            "pk",
            "replica_id",
            "node_id",
            "rank",
            "port",
            _text("devices"),
            "cpu_cores",
            "memory_bytes",
            "memory_measured_bytes",
            _text("devices_memory"),
            "observed",
            "node_address",
            _text("link"),
        )
    )
    found: dict[int, tuple[_Row, core.ShardView]] = {}
    placed: dict[int, tuple[core.ShardView, ...]] = defaultdict(tuple)
    for row in rows:
        known = _shards.get(row[0])
        if known is None or known[0] != row or known[1].node != names[row[2]]:
            known = (row, _shard(row, names[row[2]]))
        found[row[0]] = known
        placed[row[1]] += (known[1],)
    if some is None:
        _shards = found
    return placed


def replicas(
    placed: Mapping[int, tuple[core.ShardView, ...]], some: QuerySet[models.Replica] | None = None
) -> tuple[core.ReplicaView, ...]:
    """Every replica, or `some`, the oldest first. In one query."""
    global _replicas, _specs
    rows = (
        (models.Replica.objects.all() if some is None else some)
        .order_by("id")
        .values_list(
            "pk",
            "public_id",
            "model",
            "state",
            _text("state_since"),
            "profile",
            _text("spec"),
            "failures",
            _text("next_try_at"),
            "incarnation",
            "fabric",
            "meeting_port",
            _number("stale"),
            "reason_code",
            "reason",
            _text("created_at"),
            "held_by",
            _text("free_at"),
        )
    )
    found: dict[int, tuple[_Row, tuple[core.ShardView, ...], core.ReplicaView]] = {}
    specs: dict[str, tuple[Profile | None, Source | None]] = {}
    for row in rows:
        known, ranks = _replicas.get(row[0]), placed.get(row[0], ())
        spec = specs.get(row[6])
        if spec is None:
            spec = specs[row[6]] = _specs.get(row[6]) or _spec(row[6])
        if known is None or known[1] != ranks or known[0] != row:
            known = (row, ranks, _replica(row, spec, ranks))
        found[row[0]] = known
    if some is None:
        _replicas, _specs = found, specs
    return tuple(view for _, _, view in found.values())


def _facts_of(told: dict[int, str | None]) -> dict[int, NodeFacts]:
    """Of every node; decoded are those that were told since."""
    global _facts
    fresh = [pk for pk, at in told.items() if at is None or pk not in _facts or _facts[pk][0] != at]
    rows = models.Node.objects.values_list("pk", _text("facts"))
    if len(fresh) < len(told) / 2:
        rows = rows.filter(pk__in=fresh)
    decoded = {pk: msgspec.json.decode(text, type=NodeFacts, strict=False) for pk, text in rows} if fresh else {}
    found = {pk: (at or "", decoded[pk] if pk in decoded else _facts[pk][1]) for pk, at in told.items()}
    _facts = found
    return {pk: facts for pk, (_, facts) in found.items()}


def _shard(row: _Row, node: str) -> core.ShardView:
    devices: list[int] = msgspec.json.decode(row[5])
    held: dict[str, int] = msgspec.json.decode(row[9])
    return core.ShardView(
        rank=row[3],
        node=node,
        port=row[4],
        devices=tuple(devices),
        cpu_cores=row[6],
        memory_bytes=row[7],
        memory_measured_bytes=row[8],
        devices_memory={int(device): count for device, count in held.items()},
        observed=ShardState(row[10]) if row[10] else None,
        address=row[11],
        link=None if row[12] == "{}" else msgspec.json.decode(row[12], type=Fabric, strict=False),
    )


def _replica(
    row: _Row, spec: tuple[Profile | None, Source | None], ranks: tuple[core.ShardView, ...]
) -> core.ReplicaView:
    created = _stamp(row[15]) or 0.0
    return core.ReplicaView(
        id=row[1],
        model=row[2],
        state=State(row[3]),
        since=_stamp(row[4]) or created,
        profile=row[5],
        run=spec[0],
        source=spec[1],
        shards=ranks,
        failures=row[7],
        next_try_at=_stamp(row[8]),
        incarnation=row[9],
        fabric=row[10],
        meeting_port=row[11],
        stale=bool(row[12]),
        reason_code=row[13],
        reason=row[14],
        created=created,
        held_by=row[16],
        free_at=_stamp(row[17]),
    )


def _spec(text: str) -> tuple[Profile | None, Source | None]:
    placed = msgspec.json.decode(text)
    if not placed:
        return None, None
    return (
        msgspec.convert(placed["profile"], Profile, strict=False),
        msgspec.convert(placed["source"], Source, strict=False),
    )


def _stamp(text: str | None) -> float | None:
    """Stores keep times in UTC; SQLite does not say so."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
