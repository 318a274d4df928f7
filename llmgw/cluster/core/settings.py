"""The cluster's settings: one typed document with a default for everything. Pure.

A document holds only what differs from the defaults; `read` checks it whole and names every unknown key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec

from agent.wire.reason import Reason
from llmgw.cluster.core import engines, webhooks
from llmgw.cluster.core.engines import EngineOverride, EngineVersions, OfflineSettings
from llmgw.cluster.core.sections import (
    AgentSettings,
    BadSettings,
    CacheSettings,
    FacilitySettings,
    FleetSettings,
    GatewaySettings,
    KeepSettings,
    KeySettings,
    LimitSettings,
    ServingSettings,
    UsageSettings,
)
from llmgw.cluster.core.webhooks import NotifySettings
from llmgw.price import Price
from llmgw.zones import zone

_WRITTEN_S = 5.0
"""As long a heartbeat may wait until it is written (`fleet.link`)."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    serving: ServingSettings = field(default_factory=ServingSettings)
    facility: FacilitySettings = field(default_factory=FacilitySettings)
    keys: KeySettings = field(default_factory=KeySettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    keep: KeepSettings = field(default_factory=KeepSettings)
    usage: UsageSettings = field(default_factory=UsageSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
    engines: EngineVersions = field(default_factory=EngineVersions)
    engine_overrides: list[EngineOverride] = field(default_factory=list, metadata={"each": EngineOverride})
    """Laid over `engines`, and over one another in their order."""
    offline: OfflineSettings = field(default_factory=OfflineSettings)
    models: list[dict[str, Any]] = field(default_factory=list)
    """Declared models: definitions as in `model add -f`."""
    time_zone: str = ""
    """By whose clock budgets and prices begin, where a project says nothing: `Europe/Istanbul`. Empty: the portal's
    (`time_zone` in config.yaml)."""


class Default(Enum):
    """`DEFAULT` as a value takes a key out of the document. None is a value: it may mean "no limit"."""

    DEFAULT = "default"


DEFAULT = Default.DEFAULT


def read(document: dict[str, Any]) -> ClusterSettings:
    """The settings that `document` gives, defaults filled in; raises `BadSettings`."""
    unknown = [*_unknown(document, ClusterSettings, "")]
    if unknown:
        raise BadSettings(f"there is no setting {', '.join(unknown)}")
    try:
        found = msgspec.convert(document, ClusterSettings)
    except msgspec.ValidationError as e:
        raise BadSettings(str(e).replace("`$.", "`").replace(" - at ", ", at ")) from None
    if found.time_zone and isinstance(bad := zone(found.time_zone), Reason):
        raise BadSettings(f"time_zone: {bad.sentence}")
    engines.check(found.engines, found.engine_overrides)
    webhooks.check(found.notify.webhooks)
    _check_heartbeats(found)
    return found


def default_price(settings: ClusterSettings) -> Price:
    """Of a model without a price of its own."""
    said = settings.limits.default_price
    return Price(said.prompt_per_1k, said.completion_per_1k, said.cached_per_1k, said.per_image, said.per_mesh)


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


def _check_heartbeats(settings: ClusterSettings) -> None:
    """Raises `BadSettings` where a node would be lost between two of its heartbeats."""
    slowest = max((s for s in _heartbeats(settings) if s is not None), default=0.0)
    if settings.fleet.node_lost_s < 2 * slowest + _WRITTEN_S:
        raise BadSettings(
            f"a node that is heard every {slowest:g} s would be lost between two heartbeats: fleet.node_lost_s is "
            f"{settings.fleet.node_lost_s:g}, and must be at least {2 * slowest + _WRITTEN_S:g}"
        )


def _heartbeats(settings: ClusterSettings) -> Iterator[float | None]:
    yield settings.fleet.heartbeat_s
    yield settings.agents.default.heartbeat_s
    yield from (options.heartbeat_s for options in settings.agents.nodes.values())


def _unknown(document: dict[str, Any], cls: type, prefix: str) -> Iterator[str]:
    """The dotted names that no field has. A section's type is its default factory; a table of sections names the
    type of each."""
    known = {f.name: f for f in fields(cls)}
    for name, value in document.items():
        if name not in known:
            yield f"{prefix}{name}"
            continue
        section, each = known[name].default_factory, known[name].metadata.get("each")
        if each is not None and isinstance(value, list):
            for i, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield from _unknown(entry, each, f"{prefix}{name}[{i}].")
        if not isinstance(value, dict):
            continue
        if isinstance(section, type) and is_dataclass(section):
            yield from _unknown(value, section, f"{prefix}{name}.")
        elif each is not None:
            for key, entry in value.items():
                if isinstance(entry, dict):
                    yield from _unknown(entry, each, f"{prefix}{name}.{key}.")
