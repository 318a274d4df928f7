"""What every shard of one agent shares, handed in from outside: nothing in the agent is global."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.engine import Engine
from agent.engines import ENGINES
from agent.node.clock import Clock
from agent.node.home import Home
from agent.node.host import Host
from agent.node.tracing import Tracing
from agent.node.weights import Weights


@dataclass(frozen=True, slots=True)
class Context:
    home: Home
    host: Host
    weights: Weights
    clock: Clock = field(default_factory=Clock)
    engines: Mapping[str, Engine] = field(default_factory=lambda: ENGINES)
    engine_path: Callable[[str], str | None] = lambda name: None
    """An engine's executable or interpreter on this node; None where it was not found."""
    import_from: str | None = None
    """The folder that our launchers are imported from, where they are not installed."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The agent's own environment; little of it is passed on."""
    engine_user: str | None = None
    cores: int | None = None
    """Of this machine, as far as the agent may use them; None: unknown, and engines are not bounded."""
    tracing: Tracing | None = None
    alive_s: float = 5.0
    """A rank that serves no HTTP counts as started when it has lived so long."""
    log_bytes: int = 8 * 1024 * 1024
    """Of one engine's log before it is shortened."""
