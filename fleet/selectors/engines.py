"""Each node's engines: what is there, what is being installed, what was chosen."""

from __future__ import annotations

from typing import Any

from agent.engines import ENGINES
from agent.plans import INSTALLABLE
from agent.plans.outcome import AUTO, NONE
from agent.wire.facts import EngineFacts, NodeFacts
from fleet import models
from fleet.core import agents
from fleet.selectors.world import about, facts_of
from llmgw.cluster.actions import settings as cluster_settings


def engines(engine: str | None = None) -> list[dict[str, Any]]:
    """Every node's, or those of one name."""
    rows = [row for node in models.Node.objects.all() for row in of_node(node, facts_of(node))]
    return [r for r in rows if engine is None or r["engine"] == engine]


def of_node(node: models.Node, facts: NodeFacts) -> list[dict[str, Any]]:
    """Those that the node tells of, and those that it could be told to install."""
    told = {e.name: e for e in facts.engines or ()}
    known = about([node])[node.node_id]
    wanted = agents.versions(cluster_settings.in_force(), node.node_id, known) if known is not None else {}
    cards = bool(facts.gpus)
    offered = [
        e
        for e in INSTALLABLE
        if e in node.engine_builds or (facts.installs is not False and wanted.get(e) and (cards or e == "llamacpp"))
    ]
    names = sorted({*told, *offered})
    installs = facts.installs is not False
    return [_row(node, name, told.get(name), wanted.get(name) if installs else None, installs) for name in names]


def _row(node: models.Node, name: str, found: EngineFacts | None, wanted: str | None, installs: bool) -> dict[str, Any]:
    known = ENGINES.get(name)
    return {
        "node": node.node_id,
        "engine": name,
        "version": found.version if found is not None else None,
        "build": found.build if found is not None else None,
        "state": _state(found),
        "problem": found.problem if found is not None and not _begins(found) else None,
        "installing": found.installing or None if found is not None else None,
        "wanted": wanted or None,
        "chosen": node.engine_builds.get(name, AUTO),
        "builds": [AUTO, *INSTALLABLE[name].builds, NONE] if name in INSTALLABLE and installs else [],
        "tested_with": known.capabilities.tested_with if known is not None else None,
    }


def _state(found: EngineFacts | None) -> str:
    if found is None:
        return "absent"
    if _begins(found):
        return "installing"
    return "problem" if found.problem else "ready"


def _begins(found: EngineFacts) -> bool:
    """It is installed for the first time, and nothing of it serves meanwhile."""
    return found.installing is not None and found.path is None
