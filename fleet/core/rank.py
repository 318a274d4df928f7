"""Which of the nodes that fit is best: scorers in [0, 1], each with its weight. Pure.

A new scorer is a function here and a line in `SCORERS`.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.wire.reason import Reason
from fleet.core import cards
from fleet.core.feasibility import Need
from fleet.core.room import Room

Scorer = Callable[[Need, Room], float]


def score(need: Need, room: Room) -> float:
    """In [0, 1]; the higher the better."""
    return located(standing(need, room), need, room)


def standing(need: Need, room: Room) -> float:
    """By what looks at nothing but a room's likeness and its copies of the model."""
    return sum(weight * scorer(need, room) for scorer, weight in SCORERS) / sum(w for _, w in SCORERS)


def located(standing: float, need: Need, room: Room) -> float:
    """With where it stands: copies of one model in different racks and on different PDUs, where there are others. A
    node without a location is a rack of its own."""
    shared = room.ledger.shared(room.node.id, need.model) if room.ledger is not None else None
    copies = room.models.get(need.model, 0) if shared is None else shared
    whole = sum(w for _, w in SCORERS)
    return (standing * whole + LOCATED / (1 + copies)) / (whole + LOCATED)


def spread(need: Need, room: Room) -> float:
    """Copies of one model on different nodes: one node's death should not take them all."""
    return 1 / (1 + room.models.get(need.model, 0))


def idle(need: Need, room: Room) -> float:
    """Few engines of any kind, where nothing keeps two of them from sharing a core. Cards are packed instead."""
    return 0.5 if need.profile.run.gpus else 1 / (1 + sum(room.models.values()))


def packed(need: Need, room: Room) -> float:
    """How full its cards would be: small replicas fill up nodes that are begun, so that whole ones stay for large."""
    run, found = need.profile.run, cards.of(room.node.facts)
    if not run.gpus or not found:
        return 0.5
    devices = cards.choose(found, room.devices, need.wish, held=room.node.foreign)
    if isinstance(devices, Reason):
        return 0.0
    mine = {cards.kind(c) for c in found if c.index in devices}
    alike = [c for c in found if cards.kind(c) in mine and c.problem is None]
    return (run.gpus + sum(c.index in room.devices for c in alike)) / len(alike)


def holds(need: Need, room: Room) -> float:
    """It has the weights already: tens of gigabytes need not move."""
    return float(need.source in (room.node.facts.weights or ()))


def linked(need: Need, room: Room) -> float:
    """NVLink between the cards that it would get: without, a group runs several times slower."""
    run, found = need.profile.run, cards.of(room.node.facts)
    if run.gpus < 2 or found is None:
        return 0.5
    devices = cards.choose(found, room.devices, need.wish, held=room.node.foreign)
    share = None if isinstance(devices, Reason) else cards.linked(found, devices)
    return 0.5 if share is None else share


def free_cpu(need: Need, room: Room) -> float:
    """What is left unreserved once the replica is there. Those that name no cores are reckoned with their part of what
    is not reserved."""
    if need.profile.run.gpus:
        return 0.5
    has, named = room.node.facts.cpu_count, need.profile.run.cpu_cores or 0
    left = _left(has, room.cpu_cores + named)
    return left / (1 + room.sharing) if has else left


def free_memory(need: Need, room: Room) -> float:
    if need.profile.run.gpus:
        return 0.5
    has = room.node.facts.memory_bytes
    return _left(has, room.memory_bytes + need.memory_bytes(room))


def _left(has: int | None, taken: int) -> float:
    return 0.5 if not has else min(max((has - taken) / has, 0.0), 1.0)


SCORERS: tuple[tuple[Scorer, float], ...] = (
    (spread, 4.0),
    (linked, 9.0),  # more than a second copy on one node costs
    (packed, 1.0),
    (holds, 0.9),  # with `packed` less than a second copy on one node costs
    (free_cpu, 2.0),
    (free_memory, 1.0),
    (idle, 1.0),
)
LOCATED = 4.0
