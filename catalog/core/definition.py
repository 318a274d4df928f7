"""A model's definition: what people write in YAML, the API or a form, as one frozen value. Pure.

`catalog.core.reading.read` makes one of what was parsed from YAML or JSON, `catalog.core.writing.written` gives it back
in that shape, and `to_builtins`/`from_builtins` are how it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agent.wire.shard import Profile
from catalog.core.prices import WrittenPrice
from catalog.core.slo import Slo


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the week with its own bounds. `days`: mon … sun, in the cluster's time zone; `start` and `end` are
    minutes of the day, and one whose end is not after its start goes past midnight."""

    days: tuple[str, ...]
    start: int
    end: int
    min: int
    max: int | None = None
    """None: the model's own."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Replicas wanted: always `min`, by load up to `max`; `min` 0 below a `max` is loading on demand, and both 0 a
    model that is kept and not run. The first window that holds says otherwise."""

    min: int = 1
    max: int = 1
    idle_timeout_s: float = 900.0
    """An on-demand model that nobody asked for this long is stopped."""
    schedule: tuple[Window, ...] = ()
    prewarm_s: float = 0.0
    """A window's replicas are started this long before it opens."""
    prewarm_weekly: bool = False
    """On demand: start it ahead of the hours in which it was asked for in the weeks before."""


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
class ExternalKey:
    """A provider's key: the file that the edges read it from, and its share against the model's other keys."""

    file: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class External:
    """An OpenAI-compatible API elsewhere: its address without `/v1`, and what the model is called there."""

    url: str
    model: str
    keys: tuple[ExternalKey, ...]


EXTERNAL = "external"
"""The source of a model that is served outside the cluster."""


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    source: str
    profiles: tuple[ProfileDefinition, ...]
    """Empty for an external model: nothing of it is placed."""
    aliases: tuple[str, ...] = ()
    sha256: str | None = None
    kinds: tuple[str, ...] = ("chat", "completions")
    """Of chat, completions, embeddings: the endpoints it answers."""
    tools: bool | None = None
    json_schema: bool | None = None
    vision: bool | None = None
    developer_role: bool | None = None
    """Its template takes messages in the role `developer`."""
    context_length: int | None = None
    max_output: int | None = None
    scaling: Scaling = Scaling()
    routing_profile: str = "chat"
    """chat | long-context | batch: what the router may assume of its requests."""
    description: str = ""
    licence: str = ""
    prices: tuple[WrittenPrice, ...] = ()
    """Of a declared model. What a stored one's definition says becomes an entry, and is not kept here."""
    slo: Slo | None = None
    external: External | None = None
    """Where it is served, if that is outside the cluster."""
    fallbacks: tuple[str, ...] = ()
    """Models that answer, in this order, when it has no capacity."""


def to_builtins(definition: Definition) -> dict[str, Any]:
    """As it is stored."""
    stored: dict[str, Any] = msgspec.to_builtins(definition)
    return stored


def from_builtins(stored: Mapping[str, Any]) -> Definition:
    """What was stored; raises `msgspec.ValidationError` for anything else."""
    return msgspec.convert(stored, Definition)


def in_order(definition: Definition) -> tuple[ProfileDefinition, ...]:
    """The profiles as they are tried."""
    return tuple(sorted(definition.profiles, key=lambda p: -p.priority))


def source_of(definition: Definition, profile: ProfileDefinition) -> tuple[str, str | None]:
    """(source, sha256) of the weights that `profile` loads."""
    if profile.source is not None:
        return profile.source, profile.sha256
    return definition.source, definition.sha256
