"""A shard: one rank of a replica, as it is wanted of a node and as the node observes it."""

from __future__ import annotations

import hashlib
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Profile:
    """How a model is run on one kind of hardware; the engine-facing half of a catalog profile."""

    name: str
    engine: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    context_length: int | None = None
    """Tokens that one request may use, prompt and answer together."""
    parallel: int = 1
    """Requests an engine works on at once."""
    cpu_cores: int | None = None
    memory_bytes: int | None = None
    """Reserved of the node's memory by placement."""
    gpus: int = 0
    """Cards on each node: of one rank."""
    gpu_class: str | None = None
    embeddings: bool = False
    startup_timeout_s: float = 300.0
    stop_grace_s: float = 10.0
    tp: int | None = None
    """Ways by tensor parallel, over all nodes; None: the engine's own default for its cards."""
    pp: int | None = None
    """Stages by pipeline parallel, over all nodes."""
    nodes: int = 1
    """Nodes that one replica spreads over; each runs one rank of it."""
    executor: str | None = None
    """How an engine that knows several ties its ranks together: vLLM's `mp` or `ray`."""
    gpu_min_capability: float | None = None
    """Cards by requirement instead of by class: at least this compute capability (8.9) …"""
    gpu_min_memory_bytes: int | None = None
    """… and this much memory each."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """What one rank's traffic to the others goes over. `kind`: nvlink | infiniband | roce | ethernet."""

    name: str
    kind: str
    adapters: tuple[str, ...] = ()
    """This node's ports on it, as NCCL writes them: `mlx5_0:1`."""
    gid_index: int | None = None
    """RoCE: of the version 2 entry."""
    interface: str | None = None
    """The network device for what is not RDMA; None: as the kernel routes."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The ranks of one replica, as each of them is told. The leader is rank 0."""

    addresses: tuple[str, ...]
    """Of the nodes, by rank."""
    port: int
    """At the leader: where the workers meet it."""
    fabric: Fabric | None = None
    """None: one nobody named, over the nodes' addresses."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where weights come from: `path:/…`, `https://…`, `hf:owner/repo/file[@revision]`, `starter:tiny`."""

    url: str
    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """What a node is asked to keep running. `shard_id` is `<replica_id>.<rank>`."""

    shard_id: str
    replica_id: str
    model: str
    profile: Profile
    source: Source
    port: int
    key: str = field(repr=False)
    """The engine's key, from the replica id by HMAC; reaches the engine by environment, never argv."""
    rank: int = 0
    world_size: int = 1
    devices: tuple[int, ...] = ()
    incarnation: int = 1
    """Raised by the control plane to ask for a fresh start; the same number is the same run."""
    gang: Gang | None = None
    """Where `world_size` is above one."""

    @property
    def fingerprint(self) -> str:
        """Equal when a running engine would be started the same way again (the incarnation aside).

        Only what differs from its default counts: a field that a newer version adds leaves the fingerprints of
        running engines as they are, so that an upgrade restarts none of them.
        """
        return printed(told(replace(self, incarnation=0)))


def printed(plain: dict[str, Any]) -> str:
    """The fingerprint of what `told` made of a spec."""
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


def told(value: Any) -> Any:
    """A value as builtins, without the fields of dataclasses that have their defaults."""
    if not is_dataclass(value):
        return value
    return {f.name: told(getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) != _default(f)}


def _default(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a shard's processes hold on one card, measured."""

    device: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds that the parts of a start took, each once it is over."""

    fetch_s: float | None = None
    start_s: float | None = None
    """From the process's start to its first answer."""
    load_s: float | None = None
    """From there to ready."""


GPU_MEMORY, CACHE_MEMORY, CARD_HELD = "gpu_memory", "cache_memory", "card_held"
"""Why a start failed for want of a card's memory: weights or working memory, or what is left for the KV cache, do not
fit though nobody else has the card; or somebody else holds it."""


class ShardState(StrEnum):
    """A shard's life on a node. `LOADING`: the process answers, the weights are not yet in."""

    FETCHING = "fetching"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ShardObserved:
    """What the node sees of a shard. `adopted` tells a run that this agent did not start itself."""

    shard_id: str
    state: ShardState
    incarnation: int = 1
    fingerprint: str | None = None
    reason: str | None = None
    """One sentence; a failure ends with the engine's last words."""
    last_words: tuple[str, ...] | None = None
    """The last lines of the engine's log at its death, at most 20."""
    pid: int | None = None
    address: str | None = None
    port: int | None = None
    since: float | None = None
    """Unix seconds at which this state began."""
    progress: float | None = None
    """0..1 while fetching or loading, where it is known."""
    memory_bytes: int | None = None
    """Resident memory of the engine's processes, measured."""
    adopted: bool | None = None
    replica_id: str | None = None
    model: str | None = None
    devices_memory: tuple[DeviceMemory, ...] | None = None
    took: Took | None = None
    cause: str | None = None
    """Of a failure, where it is one of those that are named above."""
