"""Which builds a node gets: by its processor, cards and driver, and what is said where there is none."""

from __future__ import annotations

import re

import pytest

from agent.plans import INSTALLABLE, plans, version_problem
from agent.plans.outcome import AUTO, NONE, Candidates, Cannot, Nothing, Outcome
from agent.plans.steps import Check, Environment, Libraries, Program, ReleaseFile, Unpack
from agent.wire.facts import GpuFacts, NodeFacts


def node(
    *cards: str | None, driver: str | None = None, arch: str = "x86_64", mig: str | None = None, known: bool = True
) -> NodeFacts:
    gpus = tuple(GpuFacts(i, compute_capability=c, mig_profile=mig) for i, c in enumerate(cards))
    return NodeFacts(arch=arch, driver=driver, gpus=gpus if known else None)


def builds(outcome: Outcome) -> str:
    match outcome:
        case Candidates(found):
            return " ".join(f"{p.version}/{p.build}" for p in found)
        case Cannot(reason):
            return f"cannot: {reason.code}"
        case _:
            return "nothing"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (node(), "b10991/cpu"),
        (node(arch="aarch64"), "b10991/cpu"),
        (node(arch="riscv64"), "cannot: no_build"),
        (node(known=False), "cannot: cards_unknown"),
        (node("9.0", driver="580.65.06"), "b10991/cuda-13.3 b10991/cuda-12.8 b10991/vulkan"),
        (node("9.0", driver="570.10"), "b10991/cuda-12.8 b10991/vulkan"),
        (node("7.0", driver="580.65"), "b10991/cuda-12.8 b10991/vulkan"),  # CUDA 13 has nothing for Volta
        (node("6.1", "8.6", driver="580"), "b10991/cuda-13.3 b10991/cuda-12.8 b10991/vulkan"),
        (node("3.5", driver="470.1"), "b10991/vulkan"),
        (node("9.0", driver="570", arch="aarch64"), "b10991/vulkan"),
        (node("9.0", driver="580", arch="aarch64"), "b10991/cuda-13.3 b10991/vulkan"),
        (node("8.0", driver="580", mig="3g.40gb"), "b10991/cuda-13.3 b10991/cuda-12.8"),
        (node("8.0", driver="470", mig="3g.40gb"), "cannot: no_build"),
        (node(None, driver=None), "b10991/cuda-13.3 b10991/cuda-12.8 b10991/vulkan"),  # unknown: it is tried
    ],
)
def test_llamacpp_by_hardware(facts: NodeFacts, expected: str) -> None:
    assert builds(plans("llamacpp", facts, "b10991")) == expected


@pytest.mark.parametrize(
    ("facts", "version", "expected"),
    [
        (node(), "0.30.0", "nothing"),
        (node(known=False), "0.30.0", "nothing"),
        (node("8.0", driver="580.65"), "0.30.0", "0.30.0/cu13 0.30.0/cu129"),
        (node("7.5", driver="579"), "0.30.0", "0.30.0/cu129"),
        (node("8.0", driver="525.60"), "0.30.0", "0.30.0/cu129"),
        (node("8.0", driver="524"), "0.30.0", "cannot: driver_too_old"),
        (node("7.0", driver="580"), "0.30.0", "0.19.1/cu129"),
        (node("7.0", driver="580"), "0.18.0", "0.18.0/cu129"),
        (node("6.1", driver="580"), "0.30.0", "cannot: card_too_old"),
        (node("6.1", "7.5", driver="580"), "0.30.0", "0.30.0/cu13 0.30.0/cu129"),
        (node("7.5", driver="580", arch="aarch64"), "0.30.0", "cannot: card_too_old"),
        (node("8.0", driver="580", arch="aarch64"), "0.30.0", "0.30.0/cu13 0.30.0/cu129"),
        (node("8.0", driver="580"), "0.19.1", "0.19.1/cu129"),  # the CUDA that is needed follows the version
        (node("8.0", driver=None), "0.30.0", "cannot: cards_unknown"),
        (node(None, driver="580"), "0.30.0", "cannot: cards_unknown"),
    ],
)
def test_vllm_by_hardware(facts: NodeFacts, version: str, expected: str) -> None:
    assert builds(plans("vllm", facts, version)) == expected


def test_sglang_only_where_it_is_named() -> None:
    cards = node("8.0", driver="580")
    assert builds(plans("sglang", cards, "")) == "nothing"
    assert builds(plans("sglang", cards, "0.5.20")) == "0.5.20/index"
    assert builds(plans("sglang", node(), "0.5.20")) == "nothing"
    assert builds(plans("sglang", node("7.0", driver="580"), "0.5.20")) == "cannot: card_too_old"
    assert builds(plans("sglang", node("8.0", driver="470"), "0.5.20")) == "cannot: driver_too_old"


def test_a_chosen_build_is_taken_as_it_is() -> None:
    volta = node("7.0", driver="470")
    assert builds(plans("vllm", volta, "0.30.0", "cu13")) == "0.30.0/cu13"
    assert builds(plans("llamacpp", volta, "b10991", "cpu")) == "b10991/cpu"
    assert isinstance(plans("vllm", volta, "0.30.0", NONE), Nothing)
    assert builds(plans("vllm", volta, "0.30.0", "cu99")) == "cannot: bad_engine_build"
    assert builds(plans("vllm", volta, "newest")) == "cannot: bad_engine_version"
    assert builds(plans("trtllm", volta, "1.3")) == "cannot: unknown_engine"


@pytest.mark.parametrize("version", ["b1", "10991", "b10991 ", "../b10991", "b10991-rc", "0.30.0\n"])
def test_a_version_is_no_path(version: str) -> None:
    assert version_problem("llamacpp", version) is not None
    assert version_problem("vllm", f"{version}/..") is not None


def test_llamacpp_is_seen_to_list_the_card_it_is_for() -> None:
    outcome = plans("llamacpp", node("9.0", driver="580"), "b10991")
    assert isinstance(outcome, Candidates)
    cuda, _, vulkan = outcome.plans
    first, runtime, libraries, version, devices = cuda.steps
    assert isinstance(first, Unpack)
    assert isinstance(first.file, ReleaseFile)
    assert re.fullmatch(first.file.pattern, "llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz")
    assert re.fullmatch(first.file.pattern, "llama-b10991-bin-ubuntu-cuda-13.4-x64.tar.gz")
    assert not re.fullmatch(first.file.pattern, "llama-b10991-bin-ubuntu-x64.tar.gz")
    assert isinstance(runtime, Unpack)
    assert isinstance(runtime.file, ReleaseFile)
    assert runtime.beside == "llama-server"
    assert re.fullmatch(runtime.file.pattern, "cudart-llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz")
    assert isinstance(libraries, Libraries)
    assert isinstance(version, Check)
    assert re.search(version.expect, "version: 10991 (0123abcd)")
    assert re.search(version.expect, "version: 0.1.0-dev (build 1, commit 7e4c0a9)")  # as newer ones say it
    assert isinstance(devices, Check)
    assert re.search(devices.expect, "Available devices:\n  CUDA0: NVIDIA H200 (143771 MiB, 143000 MiB free)\n")
    assert not re.search(devices.expect, "Available devices:\n")
    assert isinstance(vulkan.steps[-1], Check)
    assert re.search(vulkan.steps[-1].expect, "Available devices:\n  Vulkan0: NVIDIA A10G\n")
    assert cuda.again == (libraries, version, devices)


def test_vllm_ends_by_computing_on_the_card() -> None:
    outcome = plans("vllm", node("8.0", driver="570"), "0.30.0")
    assert isinstance(outcome, Candidates)
    (plan,) = outcome.plans
    gcc, environment, there, computes = plan.steps
    assert isinstance(gcc, Program)
    assert isinstance(environment, Environment)
    assert environment.torch == "cu129"
    (wheel,) = environment.wheels
    assert isinstance(wheel, ReleaseFile)
    assert re.fullmatch(wheel.pattern, "vllm-0.30.0+cu129-cp38-abi3-manylinux_2_31_x86_64.whl")
    assert isinstance(there, Check)
    assert re.search(there.expect, "vllm 0.30.0+cu129 torch 2.13.0+cu129")
    assert not re.search(there.expect, "vllm 0.30.01 torch 2.13.0")
    assert isinstance(computes, Check)
    assert re.search(computes.expect, "computed 262144 on NVIDIA A10G")
    assert plan.room_bytes == 25 * 2**30


def test_every_engine_says_what_its_versions_look_like() -> None:
    for engine, known in INSTALLABLE.items():
        assert known.builds, engine
        assert known.version.fullmatch(known.version_told.rsplit(" ", 1)[-1])
        assert AUTO not in known.builds
