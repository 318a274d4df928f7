"""Every card of the fleet with what works on it, and what there is of each class. Pure.

A card is in use when a replica has it, free when the planner could give it away, and else unusable, with why. What a
card does now is known while its node is heard; a figure that nobody told is None and is never taken for nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from agent.wire.facts import INSTANCES, GpuFacts, device_name
from fleet.core import cards
from fleet.core.fabrics import Fabrics
from fleet.core.replica import State
from fleet.core.world import NodeView, ReplicaView

RACK = "llmgw.io/rack"


@dataclass(frozen=True, slots=True)
class Work:
    """What has a device: a rank of a replica. `held_bytes` by its processes there, measured."""

    model: str
    replica: str
    state: State
    rank: int = 0
    held_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A card, or an instance of one. `gpu` has the figures of now, or none of them."""

    node: str
    gpu: GpuFacts
    standing: str
    """The node's: ready, cordoned, draining, unsettled, away, lost, unknown."""
    rack: str = ""
    work: Work | None = None
    foreign_bytes: int | None = None
    """Held by programs that are not ours, while none of ours has it."""

    @property
    def name(self) -> str:
        return device_name(self.gpu.index)

    @property
    def card(self) -> int:
        """The card's place on its node; an instance has its card's."""
        return card_of(self.gpu.index)

    @property
    def used_bytes(self) -> int | None:
        if self.gpu.memory_bytes is None or self.gpu.memory_free_bytes is None:
            return None
        return max(self.gpu.memory_bytes - self.gpu.memory_free_bytes, 0)

    @property
    def memory_percent(self) -> float | None:
        used = self.used_bytes
        return None if used is None or not self.gpu.memory_bytes else 100.0 * used / self.gpu.memory_bytes

    @property
    def draw_percent(self) -> float | None:
        """Of its limit. An instance's card draws, and nobody knows which of its instances."""
        if self.gpu.mig_profile or self.gpu.power_w is None or not self.gpu.power_limit_w:
            return None
        return 100.0 * self.gpu.power_w / self.gpu.power_limit_w

    @property
    def busy_percent(self) -> float | None:
        """How much of it works: its multiprocessors with work, else its draw against its limit."""
        if self.gpu.mig_profile:
            return None
        return self.gpu.sm_active_percent if self.gpu.sm_active_percent is not None else self.draw_percent

    @property
    def busy_by(self) -> str:
        """What `busy_percent` was measured by: sm, draw, or "" where it is not known."""
        if self.busy_percent is None:
            return ""
        return "sm" if self.gpu.sm_active_percent is not None else "draw"

    @property
    def unusable(self) -> str:
        """Why nothing can be placed on it that is not there: problem, foreign, or the node's
        standing. "": it can."""
        if self.gpu.problem is not None:
            return "problem"
        if self.foreign_bytes:
            return "foreign"
        return "" if self.standing == "ready" else self.standing

    @property
    def state(self) -> str:
        if self.work is not None and self.standing != "lost":  # nobody knows what a lost node still runs
            return "used"
        return "unusable" if self.unusable else "free"


def card_of(index: int) -> int:
    return index if index < INSTANCES else (index - INSTANCES) // 100


def standing(node: NodeView, *, heard: bool = True) -> str:
    """One word for whether the planner may use it. `heard`: some link runs, so that silence says something."""
    if node.lost:
        return "lost"
    if not heard:
        return "unknown"
    if not node.connected:
        return "away"
    if node.draining:
        return "draining"
    if node.cordoned:
        return "cordoned"
    return "ready" if node.settled else "unsettled"


def of(
    nodes: Iterable[NodeView],
    replicas: Iterable[ReplicaView],
    now: Callable[[NodeView, GpuFacts], GpuFacts],
    *,
    heard: bool = True,
) -> tuple[Device, ...]:
    """Every device, by node and place. `now` gives a device its figures of now; see `standing` for `heard`."""
    works = {
        (shard.node, device): Work(
            replica.model, replica.id, replica.state, shard.rank, shard.devices_memory.get(device)
        )
        for replica in replicas
        if replica.state is not State.PARKED
        for shard in replica.shards
        for device in shard.devices
    }
    found = []
    for node in sorted(nodes, key=lambda n: n.id):
        known = standing(node, heard=heard)
        for gpu in sorted(node.facts.gpus or (), key=lambda g: (card_of(g.index), g.index)):
            work = works.get((node.id, gpu.index))
            strange = None if work is not None else node.foreign.get(gpu.index)
            found.append(Device(node.id, now(node, gpu), known, node.labels.get(RACK, ""), work, strange))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is of a class; `total` is the sum of the others. `why`: of the unusable ones, how many for what."""

    gpu_class: str
    total: int = 0
    used: int = 0
    free: int = 0
    unusable: int = 0
    memory_bytes: int | None = None
    """Of one, where all have the same."""
    why: Mapping[str, int] = field(default_factory=dict)


def capacity(devices: Iterable[Device]) -> tuple[Capacity, ...]:
    """By class, in the order of their names."""
    by: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        by[cards.kind(device.gpu)].append(device)
    found = []
    for kind, mine in sorted(by.items()):
        states = Counter(d.state for d in mine)
        sizes = {d.gpu.memory_bytes for d in mine}
        found.append(
            Capacity(
                kind,
                len(mine),
                states["used"],
                states["free"],
                states["unusable"],
                sizes.pop() if len(sizes) == 1 else None,
                dict(sorted(Counter(d.unusable for d in mine if d.state == "unusable").items())),
            )
        )
    return tuple(found)


def whole(devices: Iterable[Device]) -> tuple[str, ...]:
    """The nodes with cards of which every one is free."""
    states: dict[str, set[str]] = defaultdict(set)
    for device in devices:
        states[device.node].add(device.state)
    return tuple(sorted(node for node, found in states.items() if found == {"free"}))


@dataclass(frozen=True, slots=True)
class Spread:
    """A fabric, by its name: its nodes that have every card free, and what runs on its nodes."""

    fabric: str
    whole: tuple[str, ...] = ()
    cards: int = 0
    used: int = 0
    models: tuple[str, ...] = ()


def spread(found: Fabrics, devices: Iterable[Device]) -> tuple[Spread, ...]:
    """Of every fabric, in their order."""
    on: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        on[device.node].append(device)
    told = []
    for island in found.islands:
        mine = [d for node in island.members for d in on[node]]
        models = sorted({d.work.model for d in mine if d.work is not None})
        used = sum(d.work is not None for d in mine)
        told.append(Spread(island.name, whole(mine), len(mine), used, tuple(models)))
    return tuple(told)


@dataclass(frozen=True, slots=True)
class Holding:
    """A model's cards. `gpu_classes`: how many of each."""

    model: str
    replicas: int
    gpu_classes: Mapping[str, int]


def held(devices: Iterable[Device]) -> tuple[Holding, ...]:
    """What each model holds with replicas that serve, the most cards first."""
    replicas: dict[str, set[str]] = defaultdict(set)
    classes: dict[str, Counter[str]] = defaultdict(Counter)
    for device in devices:
        if device.work is not None and device.work.state is State.READY:
            replicas[device.work.model].add(device.work.replica)
            classes[device.work.model][cards.kind(device.gpu)] += 1
    found = [Holding(model, len(replicas[model]), dict(sorted(of.items()))) for model, of in classes.items()]
    return tuple(sorted(found, key=lambda h: (-sum(h.gpu_classes.values()), h.model)))
