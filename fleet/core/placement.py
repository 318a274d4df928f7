"""Where one more replica of a model goes: every candidate judged, the best one taken. Pure.

`explain-placement` shows the same judgement; there is no second logic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from agent.wire.reason import Reason
from catalog.core.definition import ProfileDefinition
from fleet.core import cards, rank, spanning
from fleet.core.feasibility import Need, rejections
from fleet.core.plan import Place, Seat
from fleet.core.room import Room, Rooms, first_free
from fleet.core.world import ShardView, WantedModel
from llmgw.cluster.core.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class Candidate:
    """One node under one profile: fits with a score, or every reason why not. `size` is of the card that it would give,
    where cards are asked for by requirement: the smallest class goes first."""

    node: str
    profile: str
    rejections: tuple[Reason, ...] = ()
    score: float | None = None
    size: tuple[int, tuple[int, int]] = (0, (0, 0))


@dataclass(frozen=True, slots=True)
class Judged:
    """Every node under one profile, in the rooms' order; and every fabric, where one replica wants several nodes."""

    candidates: tuple[Candidate, ...]
    groups: tuple[spanning.Group, ...] = ()


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No node can take it; `reason` sums up, `judged` says it in full."""

    reason: Reason
    judged: tuple[Judged, ...]


Memory = dict[tuple[str, str, str], tuple[int, Candidate]]
"""(model, profile, node) → (the room's takings then, the judgement): what was filled since is judged anew."""


def judge(
    wanted: WantedModel, profile: ProfileDefinition, rooms: Rooms, settings: FleetSettings, memory: Memory | None = None
) -> Judged:
    """Every node, and every fabric, under one profile."""
    need = _need(wanted, profile, settings)
    found = []
    for room in rooms.values():
        key = (wanted.name, profile.run.name, room.node.id)
        if memory is not None and (known := memory.get(key)) is not None and known[0] == room.takings:
            found.append(known[1])
            continue
        candidate = _candidate(need, room)
        if memory is not None:
            memory[key] = (room.takings, candidate)
        found.append(candidate)
    if profile.run.nodes < 2:
        return Judged(tuple(found))
    scores = {c.node: c.score for c in found if c.score is not None}
    reasons = {c.node: c.rejections for c in found if c.rejections}
    groups = spanning.groups(need, rooms, scores, reasons)
    if not any(g.nodes for g in groups):
        found = [
            c if c.rejections else replace(c, rejections=(spanning.apart(need, rooms, c.node, groups),), score=None)
            for c in found
        ]
    return Judged(tuple(found), groups)


def place(
    wanted: WantedModel,
    rooms: Rooms,
    settings: FleetSettings,
    replica: str = "",
    memory: Memory | None = None,
) -> Place | Unplaced:
    """The best place under the first profile that fits anywhere, taken out of its rooms; or why there is none."""
    judged: list[Judged] = []
    for profile in wanted.profiles:
        found = judge(wanted, profile, rooms, settings, memory)
        judged.append(found)
        nodes = best(found)
        if nodes:
            return _take(wanted, profile, rooms, settings, replica, found, nodes)
    return Unplaced(_summary(wanted, judged, settings), tuple(judged))


def fits(wanted: WantedModel, rooms: Rooms, settings: FleetSettings) -> bool:
    """Whether one more would fit, without taking anything."""
    return any(best(judge(wanted, p, rooms, settings)) for p in wanted.profiles)


def best(judged: Judged) -> tuple[str, ...]:
    """The nodes that a replica would get, the leader's first; none: it fits nowhere."""
    if judged.groups:
        return judged.groups[0].nodes
    fitting = [c for c in judged.candidates if c.score is not None]
    return (min(fitting, key=lambda c: (c.size, -(c.score or 0.0), c.node)).node,) if fitting else ()


def _need(wanted: WantedModel, profile: ProfileDefinition, settings: FleetSettings) -> Need:
    return Need(wanted.name, profile, settings, wanted.source(profile).url)


def _candidate(need: Need, room: Room) -> Candidate:
    name, run = room.node.id, need.profile.run
    reasons = rejections(need, room)
    if reasons:
        return Candidate(name, run.name, reasons)
    wish = cards.wish(run)
    size = (0, (0, 0))
    if run.gpus and wish.required:
        devices = cards.choose(cards.of(room.node.facts) or (), room.devices, wish, held=room.node.foreign)
        assert not isinstance(devices, Reason), "feasibility.gpus has looked"
        size = max(cards.smallness(c) for c in room.node.facts.gpus or () if c.index in devices)
    return Candidate(name, run.name, (), rank.score(need, room), size)


def _take(
    wanted: WantedModel,
    profile: ProfileDefinition,
    rooms: Rooms,
    settings: FleetSettings,
    replica: str,
    judged: Judged,
    nodes: tuple[str, ...],
) -> Place:
    run, need = profile.run, _need(wanted, profile, settings)
    fabric, meeting_port = "", None
    if judged.groups:
        seats, meeting_port = spanning.seats(need, rooms, judged.groups[0])
        fabric = judged.groups[0].fabric
    else:
        seats = (_seat(need, rooms[nodes[0]]),)
    for rank_, seat in enumerate(seats):
        shard = ShardView(rank_, seat.node, seat.port, seat.devices, seat.cpu_cores, seat.memory_bytes)
        rooms[seat.node].take(wanted.name, shard)
    if meeting_port is not None:
        rooms[seats[0].node].ports.add(meeting_port)
    return Place(wanted.name, run.name, run, wanted.source(profile), seats, replica, fabric, meeting_port)


def _seat(need: Need, room: Room) -> Seat:
    run, settings = need.profile.run, need.settings
    port = first_free(room.ports, range(settings.first_port, settings.last_port + 1))
    assert port is not None, "feasibility.port has looked"
    devices: tuple[int, ...] = ()
    if run.gpus:
        chosen = cards.choose(
            cards.of(room.node.facts) or (), room.devices, cards.wish(run), room.node.id, room.node.foreign
        )
        assert not isinstance(chosen, Reason), "feasibility.gpus has looked"
        devices = chosen
    return Seat(room.node.id, port, devices, run.cpu_cores or 0, run.memory_bytes or 0)


def _summary(wanted: WantedModel, judged: list[Judged], settings: FleetSettings) -> Reason:
    """One stable sentence: figures that move are left to the full explanation."""
    command = f"llmgw explain-placement {wanted.name}"
    if not wanted.definition.profiles:
        return Reason("no_profile", f"{wanted.name} has no profile to run", f"llmgw model show {wanted.name}")
    if not any(j.candidates for j in judged):
        return Reason("no_node", "there is no node yet", "llmgw node join-code")
    spanned = [
        spanning.summary(_need(wanted, p, settings), j.groups)
        for p, j in zip(wanted.profiles, judged, strict=True)
        if p.run.nodes > 1
    ]
    counts = Counter(c.rejections[0].code for c in _single(wanted, judged))
    said = [", ".join(f"{n} × {_WORDS.get(code, code.replace('_', ' '))}" for code, n in sorted(counts.items()))]
    return Reason("no_capacity", f"no node can take it: {'; '.join([*filter(None, said), *spanned])}", command)


def _single(wanted: WantedModel, judged: list[Judged]) -> list[Candidate]:
    """Of the profiles that want one node."""
    return [c for p, j in zip(wanted.profiles, judged, strict=True) if p.run.nodes < 2 for c in j.candidates]


_WORDS = {
    "node_lost": "lost",
    "node_not_connected": "not connected",
    "node_not_reported": "not reported yet",
    "node_cordoned": "cordoned",
    "node_draining": "draining",
    "label_missing": "label missing",
    "engine_missing": "engine missing",
    "engine_unusable": "engine unusable",
    "engines_unknown": "engines unknown",
    "cpu": "too few CPU cores",
    "memory": "too little memory",
    "memory_taken": "memory taken by others",
    "disk": "too little disk",
    "gpu_class": "no such GPUs",
    "gpus_mixed": "GPUs of several classes",
    "gpus_taken": "GPUs taken",
    "gpu_unusable": "GPUs unusable",
    "gpu_foreign": "GPU memory held by others",
    "mig_one": "more than one MIG instance",
    "compute_capability": "GPUs too old for the engine",
    "fp8_unsupported": "GPUs without fp8",
    "engine_too_old": "engine too old",
    "ray_exposed": "Ray on a public address",
    "ports": "no port free",
}
