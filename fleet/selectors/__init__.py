"""Reading the fleet: plain values for commands, the API, the portal, the planner and the gateway."""

from __future__ import annotations

from fleet.selectors.details import certificates, events, node, nodes, replica, replicas
from fleet.selectors.engines import engines
from fleet.selectors.explaining import explain_placement
from fleet.selectors.learned import starts
from fleet.selectors.places import all_fabrics, fabric, place, places
from fleet.selectors.serving import endpoints, model_states
from fleet.selectors.system import system
from fleet.selectors.world import load_wanted, load_world

__all__ = [
    "all_fabrics",
    "certificates",
    "endpoints",
    "engines",
    "events",
    "explain_placement",
    "fabric",
    "load_wanted",
    "load_world",
    "model_states",
    "node",
    "nodes",
    "place",
    "places",
    "replica",
    "replicas",
    "starts",
    "system",
]
