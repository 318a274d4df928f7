"""What a pretended fleet is made of, as it is handed to its process: one JSON file. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.rehearsal.figures import Weights
from agent.wire.facts import NodeFacts

LABEL = "pretended"
"""What every pretended node carries as a label, so that nobody takes it for a machine."""


@dataclass(frozen=True, slots=True)
class PretendedNode:
    """A machine: who it is, where its engines listen (an address of the loopback network), what it says of itself."""

    id: str
    address: str
    facts: NodeFacts


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes of one process. Paths are absolute; `homes` gets a folder a node, `papers` holds `ca.pem`, and
    `NODE.pem` and `NODE-key.pem` a node."""

    server: str
    homes: str
    papers: str
    nodes: tuple[PretendedNode, ...]
    models: dict[str, Weights] = field(default_factory=dict)
    """By name; one that is not here is taken for a small one."""
    load_speed: float = 1.0
    """Engines load, and weights come, so many times faster than they would."""
    answer_speed: float = 1.0
    """Tokens come so many times faster."""
    fetch_bytes_s: float = 1.25e9
    """At which weights come from the hub: ten gigabit."""
    seed: int = 0


SMALL = Weights(size_bytes=2 * 10**9, parameters=1e9)
"""What is taken of a model whose weights nobody told."""


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do, as the process reads it from its standard input, a line each."""

    id: int
    do: str
    nodes: tuple[str, ...] = ()
    args: dict[str, float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """An engine that runs, as the machine knows it: the truth that claims are held against."""

    shard_id: str
    model: str
    pid: int
    started: float
    port: int
    devices: tuple[int, ...]
    incarnation: int
    ready: bool
    behaviour: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    id: str
    up: bool
    connected: bool
    devices: tuple[int, ...]
    engines: tuple[EngineSeen, ...]
    told: str = ""
    """What the agent was told last where it is not connected."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All nodes of a process. `doubled` are cards that two engines held at once, ever; `requests` those answered."""

    nodes: tuple[NodeSeen, ...]
    doubled: tuple[str, ...] = ()
    requests: int = 0
    cpu_s: float = 0.0
    rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to an order, a line each on the standard output."""

    id: int
    problem: str | None = None
    touched: tuple[str, ...] = ()
    """Shards that the order ended, or nodes that it reached."""
    seen: Seen | None = None
