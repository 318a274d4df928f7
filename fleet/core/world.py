"""The fleet as values: what a plan is made from. Seconds are Unix seconds, sizes bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.wire.facts import NodeFacts
from agent.wire.shard import Fabric, Profile, ShardState, Source
from catalog.core.definition import Definition, ProfileDefinition
from fleet.core.learned import Shown
from fleet.core.replica import State
from llmgw.cluster.core.sections import FacilitySettings, FleetSettings, ServingSettings


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the store knows it. `labels` are the stored ones laid over the agent's own."""

    id: str
    facts: NodeFacts = field(default_factory=NodeFacts)
    labels: dict[str, str] = field(default_factory=dict)
    cordoned: bool = False
    draining: bool = False
    connected: bool = True
    reported: bool = True
    """It has told everything since the link that it is connected to began."""
    lost: bool = False
    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    settled: bool = True
    foreign: Mapping[int, int] = field(default_factory=dict)
    """By device: bytes that programs hold which are not ours, on cards that none of ours had at the last report."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """Where a rank was put, what is reserved for it there, and what its node last said of it."""

    rank: int
    node: str
    port: int
    devices: tuple[int, ...] = ()
    cpu_cores: int = 0
    memory_bytes: int = 0
    memory_measured_bytes: int | None = None
    devices_memory: dict[int, int] = field(default_factory=dict)
    """Bytes that its processes hold on each card, measured."""
    observed: ShardState | None = None
    address: str = ""
    """As `fleet.core.plan.Seat` has it."""
    link: Fabric | None = None


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """`run` and `source` are what was placed; None before the first placement."""

    id: str
    model: str
    state: State
    since: float
    profile: str = ""
    run: Profile | None = None
    source: Source | None = None
    shards: tuple[ShardView, ...] = ()
    failures: int = 0
    next_try_at: float | None = None
    incarnation: int = 1
    fabric: str = ""
    meeting_port: int | None = None
    stale: bool = False
    reason_code: str = ""
    reason: str = ""
    held_by: str = ""
    """The model that holds the card it waits for."""
    free_at: float | None = None
    """When that card should be free."""
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class StrayView:
    """A shard that a node reports and no row describes. `key` is the engine key that its replica id gives."""

    node: str
    shard_id: str
    replica_id: str
    model: str
    state: ShardState
    port: int | None = None
    fingerprint: str | None = None
    incarnation: int = 1
    foreign: bool = False
    dismissed: bool = False
    seen: float = 0.0
    """When it was first reported."""
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Demand:
    """What the gateways told of a model: requests that wait for a replica or in its queue, requests being answered, and
    when somebody last asked for it (Unix seconds)."""

    waiting: int = 0
    in_flight: int = 0
    waiting_since: float | None = None
    """Since the first request that found no replica, while one of those waits or is hoped to come back."""
    last_asked: float | None = None


@dataclass(frozen=True, slots=True)
class World:
    """One consistent look at the fleet. `version` is what must not have moved when a plan is committed."""

    nodes: tuple[NodeView, ...]
    replicas: tuple[ReplicaView, ...] = ()
    strays: tuple[StrayView, ...] = ()
    synced: bool = True
    """Every known node has reported, or its grace is over: only now may anything be stopped."""
    settings: FleetSettings = field(default_factory=FleetSettings)
    demand: Mapping[str, Demand] = field(default_factory=dict)
    """By model; without an entry nobody has asked."""
    heard: bool = True
    """Some gateway has told what it knows of demand; else nobody knows what is in use."""
    quiet: frozenset[str] = frozenset()
    """Replicas that drain, and of which every gateway says that it has nothing in flight there."""
    busy: frozenset[str] = frozenset()
    """Replicas that drain, and where some gateway has something in flight."""
    expected: frozenset[str] = frozenset()
    """Models that are usually asked for at this hour of the week."""
    starts: Mapping[str, float] = field(default_factory=dict)
    """By model: seconds that its starts take here (`fleet.core.starting`)."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """By model: how many replicas its load asks for (`fleet.core.autoscale`)."""
    serving: ServingSettings = field(default_factory=ServingSettings)
    shown: Shown = field(default_factory=dict)
    """What runs have taken here."""
    facility: FacilitySettings = field(default_factory=FacilitySettings)
    time_zone: str = "UTC"
    """By whose clock schedules are read."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class WantedModel:
    """What people asked for: a definition, and whether it was told to rest."""

    definition: Definition
    stopped: bool = False
    restarted_at: float | None = None
    """Replicas from before then are replaced …"""
    in_place: bool = False
    """… each by one on what it held, instead of beside it."""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def profiles(self) -> tuple[ProfileDefinition, ...]:
        """In the order in which they are tried."""
        return tuple(sorted(self.definition.profiles, key=lambda p: -p.priority))

    def profile(self, name: str) -> ProfileDefinition | None:
        return next((p for p in self.definition.profiles if p.run.name == name), None)

    def source(self, profile: ProfileDefinition) -> Source:
        """The weights that `profile` runs: its own, else the model's."""
        if profile.source is not None:
            return Source(url=profile.source, sha256=profile.sha256)
        return Source(url=self.definition.source, sha256=self.definition.sha256)


def synced(
    *, link_since: float | None, reported_at: tuple[float | None, ...], strange: bool, grace_s: float, now: float
) -> bool:
    """Whether the fleet has been heard: by a link that has been up since `link_since` (None: no link is up). `strange`:
    it runs engines that this store has not started, so nodes that the store does not know may run more of them."""
    if link_since is None:
        return False
    if now - link_since >= grace_s:
        return True
    return not strange and all(at is not None and at >= link_since for at in reported_at)
