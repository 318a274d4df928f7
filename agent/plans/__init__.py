"""Which builds of which engines are installed on a node, and how: pure, and known to both sides of the wire.

TensorRT-LLM is not here: it is tied to one CUDA, one PyTorch and an MPI that the machine must provide, so an operator
brings it and names its interpreter in agent.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from agent.plans import llamacpp, sglang, vllm
from agent.plans.outcome import AUTO, NONE, Cannot, Nothing, Outcome
from agent.wire.facts import NodeFacts
from agent.wire.reason import Reason


@dataclass(frozen=True, slots=True)
class Installable:
    """`builds`: those that may be chosen for a node beside `auto` and `none`."""

    builds: tuple[str, ...]
    version: re.Pattern[str]
    version_told: str
    plans: Callable[[NodeFacts, str, str], Outcome]


INSTALLABLE: dict[str, Installable] = {
    "llamacpp": Installable(llamacpp.BUILDS, llamacpp.VERSION, llamacpp.VERSION_TOLD, llamacpp.plans),
    "vllm": Installable(vllm.BUILDS, vllm.VERSION, vllm.VERSION_TOLD, vllm.plans),
    "sglang": Installable(sglang.BUILDS, sglang.VERSION, sglang.VERSION_TOLD, sglang.plans),
}


DEFAULTS = {"llamacpp": "b10991", "vllm": "0.30.0", "sglang": ""}
"""What nodes install where the cluster's settings say nothing; "" is nothing."""


def plans(engine: str, facts: NodeFacts, version: str, build: str = AUTO) -> Outcome:
    """For `version` ("" is none) and a `build` of those that the engine has. Both may be a newer control plane's."""
    if not version or build == NONE:
        return Nothing()
    known = INSTALLABLE.get(engine)
    if known is None:
        return Cannot(Reason("unknown_engine", f"this agent cannot install {engine[:40]!r}: it may be older"))
    bad = version_problem(engine, version)
    if bad is not None:
        return Cannot(bad)
    if build != AUTO and build not in known.builds:
        return Cannot(build_problem(engine, build))
    return known.plans(facts, version, build)


def version_problem(engine: str, version: str) -> Reason | None:
    known = INSTALLABLE[engine]
    if not version or known.version.fullmatch(version):
        return None
    return Reason("bad_engine_version", f"{engine} is installed as {known.version_told}, and not {version[:40]!r}")


def build_problem(engine: str, build: str) -> Reason:
    builds = ", ".join((AUTO, *INSTALLABLE[engine].builds, NONE))
    return Reason("bad_engine_build", f"{engine} has the builds {builds}, and not {build[:40]!r}")
