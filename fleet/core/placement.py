"""Where one more replica of a model goes: every candidate judged, the best one taken. Pure.

`explain-placement` shows the same judgement; there is no second logic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from agent.engines import ENGINES
from agent.wire.reason import Reason
from catalog.core.definition import ProfileDefinition
from fleet.core import cards, learned, parking, rank, spanning
from fleet.core.feasibility import MOVING, STANDING, Need, first, rejections
from fleet.core.plan import Place, Seat
from fleet.core.room import Room, Rooms, first_free
from fleet.core.world import ShardView, WantedModel
from llmgw.cluster.core.sections import FleetSettings

Size = tuple[int, tuple[int, int]]
"""Of a card: `fleet.core.cards.smallness`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One node under one profile: fits with a score, or every reason why not. `size` is of the card that it would give,
    where cards are asked for by requirement: the smallest class goes first."""

    node: str
    profile: str
    rejections: tuple[Reason, ...] = ()
    score: float | None = None
    size: Size = (0, (0, 0))


@dataclass(frozen=True, slots=True)
class Judged:
    """Every node under one profile, in the rooms' order; and every fabric, where one replica wants several nodes."""

    candidates: tuple[Candidate, ...]
    groups: tuple[spanning.Group, ...] = ()


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No node can take it. `judge` says it in full."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """`code`: the first reason why not; empty: it fits, with a score and a size as a `Candidate`'s."""

    code: str = ""
    score: float = 0.0
    size: Size = (0, (0, 0))


Memory = dict[Hashable, Verdict]
"""What was found of rooms of one likeness. It holds for a pass: a profile is known by its name."""


@dataclass(frozen=True, slots=True)
class Found:
    """What placement needs to know of every node under one profile: those that fit, and how often others do not."""

    fitting: Mapping[str, Verdict]
    codes: Counter[str]
    groups: tuple[spanning.Group, ...] = ()

    @property
    def best(self) -> tuple[str, ...]:
        """The nodes that a replica would get, the leader's first; none: it fits nowhere."""
        if self.groups:
            return self.groups[0].nodes
        fits = self.fitting.items()
        return (min(fits, key=lambda f: (f[1].size, -f[1].score, f[0]))[0],) if fits else ()


def judge(wanted: WantedModel, profile: ProfileDefinition, rooms: Rooms, settings: FleetSettings) -> Judged:
    """Every node, and every fabric, under one profile, with every reason: for people."""
    need = _need(wanted, profile, settings, rooms)
    found = [_candidate(need, room) for room in rooms.values()]
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


def look(
    wanted: WantedModel, profile: ProfileDefinition, rooms: Rooms, settings: FleetSettings, memory: Memory
) -> Found:
    """The same for a plan: rooms that are alike are judged once, and for the first reason only."""
    need = _need(wanted, profile, settings, rooms)
    fitting: dict[str, Verdict] = {}
    codes: Counter[str] = Counter()
    for name, room in rooms.items():
        key = (wanted.name, profile.run.name, room.likeness, room.models.get(wanted.name, 0))
        verdict = memory.get(key)
        if verdict is None:
            verdict = memory[key] = _verdict(need, room)
        code = verdict.code or first(MOVING, need, room)
        if code:
            codes[code] += 1
        else:
            fitting[name] = _located(verdict, need, room)
    groups: tuple[spanning.Group, ...] = ()
    if profile.run.nodes > 1:
        groups = spanning.groups(need, rooms, {n: v.score for n, v in fitting.items()}, {})
        if not groups:
            fitting = {}
    return Found(fitting, codes, groups)


def place(
    wanted: WantedModel,
    rooms: Rooms,
    settings: FleetSettings,
    replica: str = "",
    memory: Memory | None = None,
) -> Place | Unplaced:
    """The best place under the first profile that fits anywhere, taken out of its rooms; or why there is none."""
    looked: list[Found] = []
    for profile in wanted.profiles:
        found = look(wanted, profile, rooms, settings, {} if memory is None else memory)
        looked.append(found)
        if found.best:
            return _take(wanted, profile, rooms, settings, replica, found)
    return Unplaced(_summary(wanted, rooms, looked, settings))


def fits(wanted: WantedModel, rooms: Rooms, settings: FleetSettings) -> bool:
    """Whether one more would fit, without taking anything."""
    return any(look(wanted, p, rooms, settings, {}).best for p in wanted.profiles)


def _need(wanted: WantedModel, profile: ProfileDefinition, settings: FleetSettings, rooms: Rooms) -> Need:
    run, source, failed_on = profile.run, wanted.source(profile), {}
    if wanted.name in rooms.parked:
        failed_on = parking.failed_on(rooms, wanted.name, run, source)
    shown = rooms.shown.get(learned.key(run, source.url, ""), {}) if rooms.shown else {}
    takes, ran_out = None, ""
    if run.gpus:
        ran_out, size = parking.ran_out(rooms, wanted.name, run, source)
        contract = ENGINES.get(run.engine)
        fills, stated = contract is None or contract.capabilities.fills_cards, run.gpu_min_memory_bytes is not None
        takes = learned.takes(shown, fills_cards=fills, stated=stated, ran_out_bytes=size)
    return Need(wanted.name, profile, settings, cards.wish(run, takes), source.url, shown, ran_out, failed_on)


def _candidate(need: Need, room: Room) -> Candidate:
    name, run = room.node.id, need.profile.run
    reasons = rejections(need, room)
    if reasons:
        return Candidate(name, run.name, reasons)
    return Candidate(name, run.name, (), rank.score(need, room), _size(need, room))


def _verdict(need: Need, room: Room) -> Verdict:
    code = first(STANDING, need, room)
    if code:
        return Verdict(code)
    return Verdict("", rank.standing(need, room), _size(need, room))


def _located(verdict: Verdict, need: Need, room: Room) -> Verdict:
    return replace(verdict, score=rank.located(verdict.score, need, room))


def _size(need: Need, room: Room) -> Size:
    if not need.wish.count or not need.wish.required:
        return 0, (0, 0)
    devices = cards.choose(cards.of(room.node.facts) or (), room.devices, need.wish, held=room.node.foreign)
    assert not isinstance(devices, Reason), "feasibility.gpus has looked"
    return max(cards.smallness(c) for c in room.node.facts.gpus or () if c.index in devices)


def _take(
    wanted: WantedModel,
    profile: ProfileDefinition,
    rooms: Rooms,
    settings: FleetSettings,
    replica: str,
    found: Found,
) -> Place:
    run, need = profile.run, _need(wanted, profile, settings, rooms)
    fabric, meeting_port = "", None
    if found.groups:
        seats, meeting_port = spanning.seats(need, rooms, found.groups[0])
        fabric = found.groups[0].fabric
    else:
        seats = (_seat(need, rooms[found.best[0]]),)
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
        chosen = cards.choose(cards.of(room.node.facts) or (), room.devices, need.wish, room.node.id, room.node.foreign)
        assert not isinstance(chosen, Reason), "feasibility.gpus has looked"
        devices = chosen
    return Seat(room.node.id, port, devices, run.cpu_cores or 0, need.memory_bytes(room))


def _summary(wanted: WantedModel, rooms: Rooms, looked: list[Found], settings: FleetSettings) -> Reason:
    """One stable sentence: figures that move are left to the full explanation."""
    command = f"llmgw explain-placement {wanted.name}"
    if not wanted.definition.profiles:
        return Reason("no_profile", f"{wanted.name} has no profile to run", f"llmgw model show {wanted.name}")
    if not rooms:
        return Reason("no_node", "there is no node yet", "llmgw node join-code")
    counts: Counter[str] = Counter()
    spanned = []
    for profile, found in zip(wanted.profiles, looked, strict=True):
        if profile.run.nodes > 1:
            spanned.append(spanning.summary(_need(wanted, profile, settings, rooms), found.groups))
        else:
            counts += found.codes
    said = []
    if counts:
        said.append(", ".join(f"{n} × {_words(code)}" for code, n in sorted(counts.items())))
    said += spanned
    return Reason("no_capacity", f"no node can take it: {'; '.join(said)}", command)


def _words(code: str) -> str:
    return _WORDS[code] if code in _WORDS else code.replace("_", " ")


_WORDS = {
    "node_lost": "lost",
    "node_not_connected": "not connected",
    "node_not_reported": "not reported yet",
    "node_cordoned": "cordoned",
    "node_draining": "draining",
    "place_held": "where nothing new is placed",
    "power_cap": "above a power cap",
    "label_missing": "label missing",
    "engine_missing": "engine missing",
    "engine_unusable": "engine unusable",
    "engines_unknown": "engines unknown",
    "cpu": "too few CPU cores",
    "memory": "too little memory",
    "memory_taken": "memory taken by others",
    "disk": "too little disk",
    "gpu_class": "no such GPUs",
    "card_small": "cards too small",
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
    "parked_there": "parked there after failed starts",
}
