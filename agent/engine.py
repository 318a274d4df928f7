"""The contract every engine fulfils: pure functions from a profile or a shard to data.

The catalog validates with it, placement filters with it, the agent starts with it. An engine is one file in
`agent.engines` and one line in its registry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Profile, ShardSpec


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A TCP address that a command waits for before it starts, and for how long."""

    host: str
    port: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Command:
    """One process of a shard. Secrets are in `secret_env` only; `env` may be shown to an operator."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    secret_env: dict[str, str] = field(default_factory=dict, repr=False)
    waits_for: Rendezvous | None = None


@dataclass(frozen=True, slots=True)
class Probes:
    """How readiness is asked. Paths are on the shard's own port; both are asked with the shard's key."""

    alive: str = "/health"
    """Any HTTP answer: the process is up (Starting → Loading)."""
    ready: str = "/v1/models"
    """200: the weights are in (Loading → Ready)."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Where and under which names the engine tells its load; None where it does not say."""

    path: str = "/metrics"
    running: str | None = None
    waiting: str | None = None
    kv_cache_usage: str | None = None
    prompt_tokens_total: str | None = None
    completion_tokens_total: str | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do at all; a profile narrows it."""

    cpu: bool
    gpu: bool
    tensor_parallel: bool
    multi_node: bool
    lora: bool
    embeddings: bool
    tested_with: str
    """"real" or "a stand-in": shown by `engine list`."""
    weights_format: str | None = None
    """`gguf`: one file of that format, which the agent looks at before it starts the engine."""


@dataclass(frozen=True, slots=True)
class Paths:
    """What an engine's command line needs to know of the node."""

    weights: str
    """The file or folder of the model on this node."""
    engine: str
    """The engine's executable or interpreter on this node."""
    scratch: str
    """A folder of the shard's own, removed with it."""


class Engine(Protocol):
    """Pure; no member touches the machine."""

    name: str
    capabilities: Capabilities

    def problems(self, profile: Profile, facts: NodeFacts | None) -> tuple[Reason, ...]:
        """Everything that forbids running `profile` (on a node with `facts`, when given)."""
        ...

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        """Sidecars first, the server last. `host` is the address to listen on."""
        ...

    def serves_http(self, rank: int) -> bool: ...

    def probes(self, shard: ShardSpec) -> Probes: ...

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        """Metric names differ by version."""
        ...
