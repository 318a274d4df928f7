"""SGLang, where the cluster names a version: an environment from the Python index."""

from __future__ import annotations

import re

from agent.plans.cards import cards, shown
from agent.plans.outcome import AUTO, Candidates, Cannot, Nothing, Outcome
from agent.plans.python import PYTHON, ROOM_BYTES, computes, there
from agent.plans.steps import Environment, Plan, Program
from agent.wire.facts import NodeFacts
from agent.wire.reason import Reason

REPOSITORY = "sgl-project/sglang"
BUILDS = ("index",)
VERSION = re.compile(r"\d+\.\d+\.\d+(\.?(post|rc|a|b)\d+)?")
VERSION_TOLD = "a version of SGLang, like 0.5.20"

_TURING = (7, 5)
_OLDEST_DRIVER = 525
_GCC = Program("gcc", "gcc", "Triton builds its kernel launcher with it")


def plans(facts: NodeFacts, version: str, build: str = AUTO) -> Outcome:
    found = cards(facts)
    if found is None or (not found.count and build == AUTO):
        return Nothing()
    if build == AUTO and found.driver is not None and found.driver < _OLDEST_DRIVER:
        said = f"SGLang needs NVIDIA driver {_OLDEST_DRIVER} or newer, and this node has {found.driver}"
        return Cannot(Reason("driver_too_old", said, "install a newer NVIDIA driver"))
    if build == AUTO and found.capability is not None and found.capability < _TURING:
        least, has = shown(_TURING), shown(found.capability)
        old = f"SGLang runs on compute capability {least} and newer, and this node's newest card has {has}"
        return Cannot(Reason("card_too_old", old))
    environment = Environment(PYTHON, (f"sglang=={version}",), REPOSITORY, f"v{version}")
    steps = (_GCC, environment, there("sglang", version), computes("SGLang"))
    return Candidates((Plan("sglang", version, "index", "python", steps, (there("sglang", version),), ROOM_BYTES),))
