"""The fleet's part of `/api/v1`, by the same selectors and actions as the commands."""

from __future__ import annotations

from fleet.api.certificates import Certificates
from fleet.api.engines import Engines
from fleet.api.fabrics import Fabrics
from fleet.api.facility import Facility
from fleet.api.gpus import Gpus
from fleet.api.nodes import Nodes
from fleet.api.replicas import Placements, Replicas
from fleet.api.served import ServedModels
from fleet.api.system import System

routes = [
    ("nodes", Nodes, "node"),
    ("engines", Engines, "engine"),
    ("gpus", Gpus, "gpu"),
    ("replicas", Replicas, "replica"),
    ("certificates", Certificates, "certificate"),
    ("placements", Placements, "placement"),
    ("system", System, "system"),
    ("models", ServedModels, "served-model"),
    ("facility", Facility, "facility"),
    ("fabrics", Fabrics, "fabric"),
]
