"""What the cluster's settings are for one node's agent, as it is told them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agent.wire.messages import Settings
from llmgw.cluster.core.engines import EngineOverride, EngineVersions
from llmgw.cluster.core.sections import AgentOptions
from llmgw.cluster.core.settings import ClusterSettings


@dataclass(frozen=True, slots=True)
class About:
    """What of a node decides about its engines. `builds`: those that were chosen for it."""

    gpu_classes: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    builds: Mapping[str, str] = field(default_factory=dict)


def told(settings: ClusterSettings, node_id: str, about: About | None = None) -> Settings:
    """`agents.nodes.<id>` over `agents.default` over what holds for the whole fleet; labels name by name. Of a node
    that has told nothing of itself (`about` None) nothing is said of engines: they depend on what it is."""
    own, default = settings.agents.nodes.get(node_id, AgentOptions()), settings.agents.default
    heartbeat_s = next(s for s in (own.heartbeat_s, default.heartbeat_s, settings.fleet.heartbeat_s) if s is not None)
    said: dict[str, Any] = {"labels": {**default.labels, **own.labels}}
    if about is not None:
        said["engines"] = versions(settings, node_id, about)
        if about.builds:
            said["engine_builds"] = dict(about.builds)
        offline = settings.offline
        if offline.mirror or offline.index:
            said["offline"] = {"mirror": offline.mirror, "index": offline.index, "sha256": dict(offline.sha256)}
    return Settings(heartbeat_s, said)


def versions(settings: ClusterSettings, node_id: str, about: About) -> dict[str, str]:
    """The version of each engine for one node: the cluster's, and every override that picks it laid over in order."""
    found = {f.name: str(getattr(settings.engines, f.name)) for f in fields(EngineVersions)}
    for override in settings.engine_overrides:
        if _picks(override, node_id, about):
            found |= override.engines
    return found


def _picks(override: EngineOverride, node_id: str, about: About) -> bool:
    """Everything that it gives has to match."""
    wanted = override.gpu_class.lower()
    return (
        (not wanted or any(c == wanted or c.startswith(f"{wanted}-") for c in about.gpu_classes))
        and (not override.id or override.id == node_id)
        and all(about.labels.get(k) == v for k, v in override.labels.items())
    )
