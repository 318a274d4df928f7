"""vLLM: the build that a node's cards and driver run, from the Python index or (for CUDA 12.9) from its release.

Driver 580 and newer: CUDA 13. 525 to 579: CUDA 12.9. Both have kernels for Turing (7.5) and newer, on aarch64 for 8.0
and newer. From 0.20 on no build has Volta's, so a V100 gets 0.19.1. Pascal and older run none.
"""

from __future__ import annotations

import re

from agent.plans.cards import Cards, cards, shown
from agent.plans.outcome import AUTO, Candidates, Cannot, Nothing, Outcome
from agent.plans.python import PYTHON, ROOM_BYTES, computes, there
from agent.plans.steps import Environment, Plan, Program, ReleaseFile
from agent.wire.facts import NodeFacts
from agent.wire.reason import Reason

REPOSITORY = "vllm-project/vllm"
BUILDS = ("cu13", "cu129")
VERSION = re.compile(r"\d+\.\d+\.\d+(\.?(post|rc|a|b)\d+)?")
VERSION_TOLD = "a version of vLLM, like 0.30.0"
FOR_VOLTA = "0.19.1"

_VOLTA, _TURING, _AMPERE = (7, 0), (7, 5), (8, 0)
_FIRST_CU13 = (0, 20)
_OLDEST_DRIVER, _CU13_DRIVER = 525, 580
_GCC = Program("gcc", "gcc", "Triton builds its kernel launcher with it")


def plans(facts: NodeFacts, version: str, build: str = AUTO) -> Outcome:
    found = cards(facts)
    if found is None or (not found.count and build == AUTO):
        return Nothing()
    if build != AUTO:
        return Candidates((_plan(version, build),))
    refused = _refused(found, facts.arch)
    if refused is not None:
        return Cannot(refused)
    assert found.capability is not None
    assert found.driver is not None
    if _series(version) >= _FIRST_CU13 and found.capability < _TURING:
        version = FOR_VOLTA
    builds = ["cu129"]
    if _series(version) >= _FIRST_CU13 and found.driver >= _CU13_DRIVER:
        builds = ["cu13", "cu129"]
    return Candidates(tuple(_plan(version, b) for b in builds))


def _refused(found: Cards, arch: str | None) -> Reason | None:
    if found.capability is None or found.driver is None:
        lacks = "the driver's version" if found.driver is None else "the cards' compute capability"
        return Reason("cards_unknown", f"vLLM's build cannot be chosen: {lacks} is not known")
    if found.driver < _OLDEST_DRIVER:
        said = f"vLLM needs NVIDIA driver {_OLDEST_DRIVER} or newer, and this node has {found.driver}"
        return Reason("driver_too_old", said, "install a newer NVIDIA driver")
    least = _AMPERE if arch in ("aarch64", "arm64") else _VOLTA
    if found.capability < least:
        needs, has = shown(least), shown(found.capability)
        old = f"vLLM runs on compute capability {needs} and newer here, and this node's newest card has {has}"
        return Reason("card_too_old", old)
    return None


def _plan(version: str, build: str) -> Plan:
    release = f"v{version}"
    steps = Environment(PYTHON, (f"vllm=={version}",), REPOSITORY, release)
    if build == "cu129" and _series(version) >= _FIRST_CU13:
        wheel = rf"vllm-{re.escape(version)}\+cu129-cp\d+-abi3-manylinux\w*_(x86_64|aarch64)\.whl"
        steps = Environment(
            PYTHON,
            (),
            REPOSITORY,
            release,
            wheels=(ReleaseFile(REPOSITORY, release, wheel),),
            torch="cu129",
        )
    return Plan(
        "vllm",
        version,
        build,
        "vllm",
        (_GCC, steps, there("vllm", version), computes(f"vLLM's {build} build")),
        (there("vllm", version),),
        ROOM_BYTES,
    )


def _series(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
