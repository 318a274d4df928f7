"""What a pass decided: a tuple of small, named steps that `fleet.apply` carries out in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from agent.wire.reason import Reason
from agent.wire.shard import Fabric, Profile, ShardState, Source


@dataclass(frozen=True, slots=True)
class Seat:
    """What one rank gets of its node."""

    node: str
    port: int
    devices: tuple[int, ...] = ()
    cpu_cores: int = 0
    memory_bytes: int = 0
    address: str = ""
    """Of its node, and what joins it to the other ranks; only where there are others. Kept as they were at placing: an
    engine that runs is not started anew because a port on the fabric has another number."""
    link: Fabric | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Put a replica on nodes, a seat a rank, the leader's first. `replica` is a pending one's id; "": a new one."""

    model: str
    profile: str
    run: Profile
    source: Source
    seats: tuple[Seat, ...]
    replica: str = ""
    fabric: str = ""
    """What joins the nodes of several: a fabric's name, or `nvlink CLUSTER/CLIQUE`."""
    meeting_port: int | None = None
    """At the leader's node: where the ranks of several meet."""

    @property
    def leader(self) -> Seat:
        return self.seats[0]


@dataclass(frozen=True, slots=True)
class Want:
    """A replica that no node can take now: a row that says why."""

    model: str
    reason: Reason
    ordinal: int = 0
    held_by: str = ""
    """The model that holds the card it waits for …"""
    free_at: float | None = None
    """… and when that should be free."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A pending replica's reason has changed. `kept`: its life line says so."""

    replica: str
    reason: Reason
    held_by: str = ""
    free_at: float | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Its back-off is over: a fresh start on the same nodes, every rank on another port: something may hold the old."""

    replica: str
    ports: tuple[int, ...]
    meeting_port: int | None = None


@dataclass(frozen=True, slots=True)
class Lose:
    replica: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Drain:
    """No new requests from now on; it ends when it is idle, or its time is over (`fleet.core.swap.drained`)."""

    replica: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Stop:
    replica: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing of it runs and nothing of it is placed: its row goes."""

    replica: str


@dataclass(frozen=True, slots=True)
class Flag:
    """Whether it differs from its definition."""

    replica: str
    stale: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """A replica that runs, that no row knows and that is wanted just so: rows are made for it, a seat a rank."""

    replica: str
    model: str
    profile: str
    run: Profile
    source: Source
    seats: tuple[Seat, ...]
    incarnation: int
    states: tuple[ShardState, ...]
    """Of its ranks."""
    fabric: str = ""
    meeting_port: int | None = None

    @property
    def leader(self) -> Seat:
        return self.seats[0]

    @property
    def state(self) -> ShardState:
        """Of all ranks together: that of the one that is least far."""
        return min(self.states, key=(ShardState.STARTING, ShardState.LOADING, ShardState.READY).index)

    @property
    def shard_ids(self) -> tuple[str, ...]:
        return tuple(f"{self.replica}.{rank}" for rank in range(len(self.seats)))


@dataclass(frozen=True, slots=True)
class Settle:
    """Every engine on the node is decided about: it may end what it was not asked to run."""

    node: str


Step = Place | Want | Hold | Retry | Lose | Drain | Stop | Forget | Flag | Adopt | Settle
STOPS = (Drain, Stop, Settle)
"""Steps that may end a running engine: never before the world is synced."""


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)
