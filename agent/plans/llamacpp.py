"""llama.cpp: the release build for a node's processor, cards and driver. The builds for cards come first wherever
there is an NVIDIA card, and the one for the processor alone only where there is none: on a node with cards it would
serve, slowly, and nothing would look wrong."""

from __future__ import annotations

import re

from agent.plans.cards import Cards, cards, shown
from agent.plans.outcome import AUTO, Candidates, Cannot, Outcome
from agent.plans.steps import Check, Libraries, Plan, ReleaseFile, Step, Unpack
from agent.wire.facts import NodeFacts
from agent.wire.reason import Reason

REPOSITORY = "ggml-org/llama.cpp"
BUILDS = ("cuda-13.3", "cuda-12.8", "vulkan", "cpu")
VERSION = re.compile(r"b\d{3,7}")
VERSION_TOLD = "a release of llama.cpp, like b10991"

_ARCHES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_GIB = 2**30
_ROOM = {"cuda-13.3": 3 * _GIB, "cuda-12.8": 3 * _GIB, "vulkan": _GIB, "cpu": _GIB // 2}
_DEVICE = {"cuda-13.3": r"CUDA\d+", "cuda-12.8": r"CUDA\d+", "vulkan": r"Vulkan\d+"}
_BACKEND = {"cuda-13.3": "libggml-cuda*.so*", "cuda-12.8": "libggml-cuda*.so*", "vulkan": "libggml-vulkan*.so*"}
_NEEDS: dict[str, tuple[int, tuple[int, int]]] = {"cuda-13.3": (580, (7, 5)), "cuda-12.8": (525, (5, 0))}
"""The oldest driver and compute capability. CUDA 13 has no kernels before Turing."""


def plans(facts: NodeFacts, version: str, build: str = AUTO) -> Outcome:
    arch = _ARCHES.get(facts.arch or "")
    if arch is None:
        return Cannot(Reason("no_build", f"llama.cpp has no release build for {facts.arch or 'an unknown processor'}"))
    found = cards(facts)
    if build != AUTO:
        return Candidates((_plan(version, build, arch),))
    if found is None:
        return Cannot(
            Reason("cards_unknown", "whether this node has GPUs is not known yet, so no build is chosen for it")
        )
    if not found.count:
        return Candidates((_plan(version, "cpu", arch),))
    chosen = tuple(_plan(version, b, arch) for b in _for_cards(found, arch))
    if chosen:
        return Candidates(chosen)
    return Cannot(Reason("no_build", f"llama.cpp has no build for this node's GPUs: {_told(found)}"))


def _for_cards(found: Cards, arch: str) -> list[str]:
    fitting = [
        name
        for name, (driver, capability) in _NEEDS.items()
        if (found.driver is None or found.driver >= driver)
        and (found.capability is None or found.capability >= capability)
        and (name != "cuda-12.8" or arch == "x64")
    ]
    return fitting if found.only_instances else [*fitting, "vulkan"]


def _told(found: Cards) -> str:
    driver = f"driver {found.driver}" if found.driver is not None else "an unknown driver"
    capability = f", compute capability {shown(found.capability)}" if found.capability is not None else ""
    return f"{driver}{capability}{', MIG instances, which Vulkan does not see' if found.only_instances else ''}"


def _plan(version: str, build: str, arch: str) -> Plan:
    kind = "" if build == "cpu" else f"{build}-"
    # A later release of the same series of CUDA (13.4) is the same build to us.
    pattern = re.escape(kind).replace(r"13\.3", r"13\.\d+").replace(r"12\.8", r"12\.\d+")
    ending = rf"bin-ubuntu-{pattern}{arch}\.(tar\.gz|zip)"
    steps: list[Step] = [Unpack(ReleaseFile(REPOSITORY, version, rf"llama-{version}-{ending}"))]
    if build.startswith("cuda"):
        runtime = rf"cudart-llama-({version}-)?{ending}"
        steps.append(Unpack(ReleaseFile(REPOSITORY, version, runtime), beside="llama-server"))
    libraries = Libraries(("llama-server", *((_BACKEND[build],) if build in _BACKEND else ())))
    runs = Check(
        ("llama-server", "--version"),
        r"version: \S",  # that it runs; which one it is its digest has proved, and how it says so has changed
        f"llama.cpp {version} does not run here",
        timeout_s=30.0,
    )
    looks: list[Libraries | Check] = [libraries, runs]
    if build in _DEVICE:
        looks.append(
            Check(
                ("llama-server", "--list-devices"),
                rf"(?m)^\s*{_DEVICE[build]}:",
                f"its {build} build lists no GPU, and would compute on the CPU",
            )
        )
    return Plan("llamacpp", version, build, "llama-server", (*steps, *looks), tuple(looks), _ROOM[build])
