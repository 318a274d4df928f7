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
    memory_held: bool = False
    """It is not ready before its processes hold memory on each card that the shard was given."""


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
    """`gguf`: one file of that format, which the agent looks at before it starts the engine. `folder`: a folder as
    Hugging Face lays it out, with a `config.json`."""
    parallel: int = 1
    """Requests worked on at once where the profile does not say."""
    executors: tuple[str, ...] = ()
    """Ways to tie its ranks together; the first one is the default."""
    kv_events: bool = False
    """It tells which blocks its KV cache holds."""
    launchers: tuple[str, ...] = ()
    """Modules of `agent.launchers` that its interpreter, which is not ours, is given: these alone."""
    min_compute_capability: float | None = None
    """Of the cards that it has kernels for."""
    fills_cards: bool = False
    """It takes a share of each card, whatever the model needs: what it holds on one says nothing of a smaller one."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model's own files say of it. None: not said, or not looked at."""

    kv_heads: int | None = None
    attention_heads: int | None = None
    layers: int | None = None
    quantization: str | None = None
    """As the files name it: `fp8`, `awq`, `Q4_K_M`."""
    trained_context: int | None = None
    """Tokens."""
    size_bytes: int | None = None
    architecture: str | None = None
    kv_token_bytes: int | None = None
    """What a token takes of a KV cache at 16 bits, in all layers together."""


@dataclass(frozen=True, slots=True)
class Paths:
    """What an engine's command line needs to know of the node."""

    weights: str
    """The file or folder of the model on this node."""
    engine: str
    """The engine's executable or interpreter on this node."""
    scratch: str
    """A folder of the shard's own, removed with it."""
    interface: str | None = None
    """The network device that holds this node's address."""
    cores: int | None = None
    """How many an engine on the CPU may use whose profile names no number; None: as many as it takes by itself."""


class Engine(Protocol):
    """Pure; no member touches the machine."""

    name: str
    capabilities: Capabilities

    def problems(
        self, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None = None
    ) -> tuple[Reason, ...]:
        """Everything that forbids running `profile` (on a node with `facts`, when given; with a model of which
        `model` is known, when given). Facts that hold only the cards that were chosen are judged as these."""
        ...

    def on_cards(self, profile: Profile, gpus: int) -> Profile:
        """`profile` spread over another number of cards of each node, without what was written for the old ones."""
        ...

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        """Sidecars first, the server last. `host` is the address to listen on."""
        ...

    def serves_http(self, rank: int) -> bool: ...

    def probes(self, shard: ShardSpec) -> Probes: ...

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        """Metric names differ by version."""
        ...
