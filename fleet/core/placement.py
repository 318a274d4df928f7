"""Where one more replica of a model goes: every candidate judged, the best one taken. Pure.

`explain-placement` shows the same judgement; there is no second logic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from agent.wire.reason import Reason
from catalog.core.definition import ProfileDefinition
from fleet.core import cards, rank
from fleet.core.feasibility import Need, rejections
from fleet.core.plan import Place, Seat
from fleet.core.room import Room, first_free
from fleet.core.world import ShardView, WantedModel
from llmgw.cluster.core.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class Candidate:
    """One node under one profile: fits with a score, or every reason why not."""

    node: str
    profile: str
    rejections: tuple[Reason, ...] = ()
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No node can take it; `reason` sums up, `candidates` say it in full."""

    reason: Reason
    candidates: tuple[Candidate, ...]


Memory = dict[tuple[str, str, str], tuple[int, Candidate]]
"""(model, profile, node) → (the room's takings then, the judgement): what was filled since is judged anew."""


def judge(
    wanted: WantedModel,
    profile: ProfileDefinition,
    rooms: Iterable[Room],
    settings: FleetSettings,
    memory: Memory | None = None,
) -> tuple[Candidate, ...]:
    """Every node under one profile, in the rooms' order."""
    need = Need(wanted.name, profile, settings)
    found = []
    for room in rooms:
        key = (wanted.name, profile.run.name, room.node.id)
        if memory is not None and (known := memory.get(key)) is not None and known[0] == room.takings:
            found.append(known[1])
            continue
        reasons = rejections(need, room)
        score = None if reasons else rank.score(need, room)
        candidate = Candidate(room.node.id, profile.run.name, reasons, score)
        if memory is not None:
            memory[key] = (room.takings, candidate)
        found.append(candidate)
    return tuple(found)


def place(
    wanted: WantedModel,
    rooms: dict[str, Room],
    settings: FleetSettings,
    replica: str = "",
    memory: Memory | None = None,
) -> Place | Unplaced:
    """The best node under the first profile that fits anywhere, taken out of its room; or why there is none."""
    judged: list[Candidate] = []
    for profile in wanted.profiles:
        candidates = judge(wanted, profile, rooms.values(), settings, memory)
        judged += candidates
        fitting = [c for c in candidates if c.score is not None]
        if fitting:
            best = min(fitting, key=lambda c: (-(c.score or 0.0), c.node))
            return _take(wanted, profile, rooms[best.node], settings, replica)
    return Unplaced(_summary(wanted, judged), tuple(judged))


def fits(wanted: WantedModel, rooms: dict[str, Room], settings: FleetSettings) -> bool:
    """Whether one more would fit, without taking anything."""
    return any(c.score is not None for p in wanted.profiles for c in judge(wanted, p, rooms.values(), settings))


def _take(wanted: WantedModel, profile: ProfileDefinition, room: Room, settings: FleetSettings, replica: str) -> Place:
    run = profile.run
    port = first_free(room.ports, range(settings.first_port, settings.last_port + 1))
    assert port is not None, "feasibility.port has looked"
    devices: tuple[int, ...] = ()
    if run.gpus:
        chosen = cards.choose(cards.of(room.node.facts) or (), room.devices, run.gpus, run.gpu_class, room.node.id)
        assert not isinstance(chosen, Reason), "feasibility.gpus has looked"
        devices = chosen
    cpu_cores, memory_bytes = run.cpu_cores or 0, run.memory_bytes or 0
    room.take(wanted.name, ShardView(0, room.node.id, port, devices, cpu_cores, memory_bytes))
    source = wanted.source(profile)
    seat = Seat(room.node.id, port, devices, cpu_cores, memory_bytes)
    return Place(wanted.name, run.name, run, source, (seat,), replica=replica)


def _summary(wanted: WantedModel, judged: list[Candidate]) -> Reason:
    """One stable sentence: figures that move are left to the full explanation."""
    command = f"llmgw explain-placement {wanted.name}"
    if not wanted.definition.profiles:
        return Reason("no_profile", f"{wanted.name} has no profile to run", f"llmgw model show {wanted.name}")
    if not judged:
        return Reason("no_node", "there is no node yet", "llmgw node join-code")
    counts = Counter(c.rejections[0].code for c in judged)
    said = ", ".join(f"{n} × {_WORDS.get(code, code.replace('_', ' '))}" for code, n in sorted(counts.items()))
    return Reason("no_capacity", f"no node can take it: {said}", command)


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
    "mig_one": "more than one MIG instance",
    "ports": "no port free",
}
