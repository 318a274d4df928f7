"""What the cluster's settings are for one node's agent, as it is told them. Pure."""

from __future__ import annotations

from agent.wire.messages import Settings
from llmgw.cluster.core.settings import AgentOptions, ClusterSettings


def told(settings: ClusterSettings, node_id: str) -> Settings:
    """`agents.nodes.<id>` over `agents.default` over what holds for the whole fleet; labels name by name."""
    own, default = settings.agents.nodes.get(node_id, AgentOptions()), settings.agents.default
    heartbeat_s = next(s for s in (own.heartbeat_s, default.heartbeat_s, settings.fleet.heartbeat_s) if s is not None)
    return Settings(heartbeat_s, {"labels": {**default.labels, **own.labels}})
