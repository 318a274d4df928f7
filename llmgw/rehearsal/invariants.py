"""What must hold after every fault, however bad: the rows of the store against what the machines really run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agent.rehearsal.values import EngineSeen, Seen
from fleet.core.replica import ORDERED, State

NAMES = ("owned", "claims", "gpus", "back", "kept", "booked")
TITLES = {
    "owned": "every engine owned or gone",
    "claims": "every claim true",
    "gpus": "no GPU twice",
    "back": "models back within the bound",
    "kept": "nothing restarted that need not be",
    "booked": "one usage row a request",
}


@dataclass(frozen=True, slots=True)
class ShardRow:
    shard_id: str
    node: str
    port: int
    devices: tuple[int, ...]
    state: State
    incarnation: int
    model: str


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    id: str
    model: str
    state: State
    reason_code: str = ""
    reason: str = ""
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """What the store says. `claims`: (node, device, shard id). `nodes`: those it holds to be connected."""

    replicas: tuple[ReplicaRow, ...] = ()
    shards: tuple[ShardRow, ...] = ()
    claims: tuple[tuple[str, int, str], ...] = ()
    connected: frozenset[str] = frozenset()


Engine = tuple[str, str, int]
"""(node, shard, process): an engine from one start to its end."""


@dataclass(frozen=True, slots=True)
class Before:
    """What was so before a fault: engines that ran, and how many of each model served."""

    engines: frozenset[Engine] = frozenset()
    ready: Mapping[str, int] = field(default_factory=dict)


WAITS = ("no_capacity", "no_node", "waits_its_turn")
"""Reasons for which a replica may wait: there is nowhere for it."""


def engines(seen: Seen) -> frozenset[Engine]:
    return frozenset((n.id, e.shard_id, e.pid) for n in seen.nodes for e in n.engines)


def ready(rows: Rows) -> dict[str, int]:
    return dict(Counter(r.model for r in rows.replicas if r.state is State.READY))


def broken(
    rows: Rows,
    seen: Seen,
    before: Before,
    may_end: Collection[str],
    away: Collection[str],
    parked: Collection[str] = (),
) -> dict[str, list[str]]:
    """By invariant: what breaks it now. `may_end`: shards that the fault itself ended, or replicas of which one had to
    be; `away`: nodes that the fault keeps away; `parked`: models that cannot start while it holds."""
    return {
        "owned": _owned(rows, seen, away),
        "claims": _claims(rows, seen, away),
        "gpus": list(seen.doubled) + _twice(seen),
        "back": _back(rows, seen, before, away, parked),
        "kept": _kept(seen, before, may_end),
    }


def _owned(rows: Rows, seen: Seen, away: Collection[str]) -> list[str]:
    known = {s.shard_id: s for s in rows.shards}
    found = []
    for node in seen.nodes:
        if not node.up or node.id in away:
            continue
        for engine in node.engines:
            row = known.get(engine.shard_id)
            if row is None:
                found.append(f"{node.id} runs {engine.shard_id}, which no row knows")
            elif row.node != node.id:
                found.append(f"{node.id} runs {engine.shard_id}, which is {row.node}'s")
            elif row.state not in ORDERED:
                found.append(f"{node.id} runs {engine.shard_id}, whose replica is {row.state}")
            elif (row.port, row.devices) != (engine.port, engine.devices):
                found.append(f"{engine.shard_id} runs otherwise than its row says")
    running = {(n.id, e.shard_id) for n in seen.nodes for e in n.engines}
    for row in rows.shards:
        if row.state is State.READY and row.node not in away and (row.node, row.shard_id) not in running:
            found.append(f"{row.shard_id} is told to be ready, and {row.node} does not run it")
    return found


def _claims(rows: Rows, seen: Seen, away: Collection[str]) -> list[str]:
    shards = {s.shard_id: s for s in rows.shards}
    devices = {n.id: set(n.devices) for n in seen.nodes}
    found = []
    claimed: dict[str, set[int]] = {}
    for node, device, shard_id in rows.claims:
        row = shards.get(shard_id)
        if row is None or row.node != node or device not in row.devices:
            found.append(f"the claim of {shard_id} to card {device} of {node} is nobody's")
        if node in devices and device not in devices[node]:
            found.append(f"{shard_id} claims card {device} of {node}, which has none of that number")
        claimed.setdefault(shard_id, set()).add(device)
    for node_seen in seen.nodes:
        if node_seen.id in away:
            continue
        for engine in node_seen.engines:
            if engine.shard_id in shards and set(engine.devices) - claimed.get(engine.shard_id, set()):
                found.append(f"{engine.shard_id} holds cards of {node_seen.id} that it does not claim")
    return found


def _twice(seen: Seen) -> list[str]:
    """Cards under two engines now."""
    found = []
    for node in seen.nodes:
        holders: dict[int, EngineSeen] = {}
        for engine in node.engines:
            for device in engine.devices:
                other = holders.setdefault(device, engine)
                if other.shard_id != engine.shard_id:
                    found.append(f"{node.id}: {other.shard_id} and {engine.shard_id} on {device}")
    return found


def _back(rows: Rows, seen: Seen, before: Before, away: Collection[str], parked: Collection[str]) -> list[str]:
    found = []
    have = ready(rows)
    for model, count in sorted(before.ready.items()):
        if model in parked:
            continue
        waits = sum(r.model == model and r.state is State.PENDING and r.reason_code in WAITS for r in rows.replicas)
        if have.get(model, 0) + waits < count:
            states = Counter(str(r.state) for r in rows.replicas if r.model == model)
            told = ", ".join(f"{n} {s}" for s, n in sorted(states.items())) or "none at all"
            found.append(f"{model} had {count} ready replicas, and has {told}")
    up = {n.id for n in seen.nodes if n.up} - set(away)
    for node in sorted(up - rows.connected):
        found.append(f"{node} is not connected")
    for replica in rows.replicas:
        if replica.state not in (State.READY, State.PENDING, State.PARKED) and replica.model not in parked:
            found.append(f"{replica.id} of {replica.model} is {replica.state}")
        elif replica.stale and replica.model not in parked:
            found.append(f"{replica.id} of {replica.model} is of the old definition")
    return found


def _kept(seen: Seen, before: Before, may_end: Collection[str]) -> list[str]:
    """`may_end`: shard ids; `NODE/*` stands for all that a node ran. The other ranks of a replica are nothing without
    the one that ended."""
    excused = {_replica(shard) for node, shard, _ in before.engines if shard in may_end or f"{node}/*" in may_end}
    gone = before.engines - engines(seen)
    return sorted(f"{shard} on {node} ended without need" for node, shard, _ in gone if _replica(shard) not in excused)


def _replica(shard_id: str) -> str:
    return shard_id.rpartition(".")[0]
