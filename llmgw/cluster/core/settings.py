"""The cluster's settings: one typed document with a default for everything. Pure.

A document holds only what differs from the defaults; `read` checks it whole and names every unknown key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Pause = Annotated[float, msgspec.Meta(ge=0.1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """See `gateway.core.snapshot.Policies`; seconds and bytes."""

    connect_timeout_s: Seconds = 3.0
    header_timeout_s: Seconds = 1200.0
    idle_timeout_s: Seconds = 120.0
    generation_timeout_s: Seconds = 3600.0
    keepalive_s: Seconds = 15.0
    max_body_bytes: AtLeastOne = 32 * 1024 * 1024
    retries: Count = 2
    route_by: Literal["predicted", "least_load", "prefix", "round_robin"] = "predicted"


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Seconds. A node is lost after `node_lost_s` without a heartbeat; a failed start waits `backoff_first_s`,
    doubled each time up to `backoff_most_s`, and after `park_after` starts in a row the replica is parked. A replica
    that is to go gets no new requests for `drain_s` first; one that served `healthy_s` starts counting anew."""

    heartbeat_s: Pause = 2.0
    node_lost_s: Seconds = 20.0
    sync_grace_s: Seconds = 30.0
    backoff_first_s: Seconds = 2.0
    backoff_most_s: Seconds = 300.0
    park_after: AtLeastOne = 5
    healthy_s: Seconds = 60.0
    drain_s: Seconds = 10.0
    first_port: Port = 18100
    last_port: Port = 18999


@dataclass(frozen=True, slots=True)
class KeySettings:
    """`max_ttl_days` None: a key need not expire."""

    max_ttl_days: AtLeastOne | None = 90


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`default` for every node, `nodes.<id>` laid over it."""

    default: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    keys: KeySettings = field(default_factory=KeySettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
    models: list[dict[str, Any]] = field(default_factory=list)
    """Declared models: definitions as in `model add -f`."""


class Default(Enum):
    """`DEFAULT` as a value takes a key out of the document. None is a value: it may mean "no limit"."""

    DEFAULT = "default"


DEFAULT = Default.DEFAULT


class BadSettings(ValueError):
    """The document would not load; the sentence names the key."""


def read(document: dict[str, Any]) -> ClusterSettings:
    """The settings that `document` gives, defaults filled in; raises `BadSettings`."""
    unknown = [*_unknown(document, ClusterSettings, "")]
    if unknown:
        raise BadSettings(f"there is no setting {', '.join(unknown)}")
    try:
        return msgspec.convert(document, ClusterSettings)
    except msgspec.ValidationError as e:
        raise BadSettings(str(e).replace("`$.", "`").replace(" - at ", ", at ")) from None


def get(document: dict[str, Any], path: str) -> Any:
    """The value in force at a dotted `path`, default or not; raises `BadSettings` for an unknown one."""
    found: Any = msgspec.to_builtins(read(document))
    for name in filter(None, path.split(".")):
        if not isinstance(found, dict) or name not in found:
            raise BadSettings(f"there is no setting {path}")
        found = found[name]
    return found


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `document` with `value` at `path`, checked; `DEFAULT` takes the key out."""
    names = path.split(".")
    if not all(names):
        raise BadSettings(f"a setting is named like gateway.retries, not {path!r}")
    changed: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    place = changed
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise BadSettings(f"there is no setting {path}")
    if value is DEFAULT:
        place.pop(names[-1], None)
    else:
        place[names[-1]] = value
    read(changed)
    return changed


def _unknown(document: dict[str, Any], cls: type, prefix: str) -> Iterator[str]:
    """The dotted names that no field has. A section's type is its default factory."""
    sections = {f.name: f.default_factory for f in fields(cls)}
    for name, value in document.items():
        if name not in sections:
            yield f"{prefix}{name}"
            continue
        section = sections[name]
        if isinstance(value, dict) and isinstance(section, type) and is_dataclass(section):
            yield from _unknown(value, section, f"{prefix}{name}.")
