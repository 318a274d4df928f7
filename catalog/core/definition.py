"""A model's definition: what people write in YAML, the API or a form, as one frozen value. Pure.

`read` takes what was parsed from YAML or JSON and returns a `Definition` or raises `Invalid` with every problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.wire.shard import Profile


@dataclass(frozen=True, slots=True)
class Scaling:
    """Replicas wanted: always `min`; load scaling up to `max` comes with its issue."""

    min: int = 1
    max: int = 1


@dataclass(frozen=True, slots=True)
class ProfileDefinition:
    """One way to run the model, tried by falling `priority`, then in the order written."""

    run: Profile
    """The engine-facing half."""
    source: str | None = None
    """Weights of its own; None: the model's."""
    sha256: str | None = None
    priority: int = 100
    weight: float = 1.0
    labels: dict[str, str] = field(default_factory=dict)
    """A node must carry all of these."""
    min_disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    source: str
    profiles: tuple[ProfileDefinition, ...]
    aliases: tuple[str, ...] = ()
    sha256: str | None = None
    kinds: tuple[str, ...] = ("chat", "completions")
    """Of chat, completions, embeddings: the endpoints it answers."""
    tools: bool | None = None
    json_schema: bool | None = None
    vision: bool | None = None
    context_length: int | None = None
    max_output: int | None = None
    scaling: Scaling = Scaling()
    description: str = ""
    licence: str = ""
