"""The doctor: one finding for each fault of cards, links and fabrics, with what to do; nothing where all is well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.doctor import Level, Seen, findings
from agent.wire.facts import DomainFacts, FabricFacts, GpuFacts, NodeFacts, PcieFacts, PortFacts

GPU = GpuFacts(
    0, "GPU-1", "NVIDIA H100 80GB HBM3", "h100-80g", 80 * 2**30, bus_id="0000:18:00.0",
    pcie=PcieFacts(5, 16, 5, 16), ecc_uncorrected=0, remap_pending=False, mig_enabled=False, mig_pending=False,
    switched=False,
)  # fmt: skip
IB = PortFacts("mlx5_0", 1, "infiniband", True, 200.0, subnet_manager_lid=1, errors=0)
ROCE = PortFacts("mlx5_2", 1, "roce", True, 100.0, netdev="ens1", gid_index=3)
WELL = Seen(
    NodeFacts(arch="x86_64", vector_extensions=("avx", "avx2"), gpus=(GPU,), rdma_ports=(IB, ROCE), driver="570.86.15"),
    modules=frozenset({"nvidia", "nvidia_peermem"}),
    memlock_bytes=-1,
)
SWITCHED = replace(GPU, switched=True)
JOINED = replace(GPU, domain=DomainFacts("Completed", "a1", 7))


def seen(gpu: GpuFacts | None = None, port: PortFacts | None = None, **fields: object) -> Seen:
    facts = replace(WELL.facts, gpus=(gpu or GPU,), rdma_ports=(port,) if port is not None else WELL.facts.rdma_ports)
    return replace(WELL, **{"facts": facts, **fields})  # type: ignore[arg-type]


def faults(looked: Seen) -> dict[str, str]:
    return {f.reason.code: f.reason.sentence for f in findings(looked) if f.level is not Level.OK}


def test_all_is_well() -> None:
    assert faults(WELL) == {}
    assert {f.check for f in findings(WELL)} == {"gpu", "rdma", "cpu"}
    assert faults(Seen(NodeFacts())) == {}, "what nobody knows is no fault"


CASES: list[tuple[str, Seen, str, str]] = [
    ("pcie_slow", seen(replace(GPU, pcie=PcieFacts(5, 8, 5, 16))), "x8 of its x16", "31.5 GB/s where it could"),
    ("pcie_slow", seen(replace(GPU, pcie=PcieFacts(4, 16, 5, 16))), "generation 4 of its 5", "lspci"),
    ("pcie_slow", seen(replace(GPU, pcie=PcieFacts(None, 8, None, 16))), "linked at x8 of its x16 lanes. Check", ""),
    ("ecc_uncorrected", seen(replace(GPU, ecc_uncorrected=2)), "2 memory errors that ECC could not mend", "drain"),
    ("remap_pending", seen(replace(GPU, remap_pending=True)), "its next reset", "-r"),
    ("mig_pending", seen(replace(GPU, mig_pending=True)), "turns MIG on at its next reset", "-r"),
    ("gpu_unusable", seen(replace(GPU, index=1002, problem="it is so")), "GPU 0/mig2", "it is so"),
    ("no_fabric_manager", seen(SWITCHED), "nvidia-fabricmanager is not there", "nvidia-fabricmanager-570"),
    ("fabric_manager_stopped", seen(SWITCHED, fabric_manager="stopped"), "does not run", "systemctl"),
    ("fabric_manager_version", seen(SWITCHED, fabric_manager="565.57.01"), "565.57.01 and the driver of 570.86.15", ""),
    ("domain_incomplete", seen(replace(GPU, domain=DomainFacts("In Progress"))), "have not joined", "In Progress"),
    ("no_imex", seen(JOINED), "nvidia-imex does not run", "systemctl"),
    ("no_imex", seen(JOINED, imex="stopped"), "nvidia-imex does not run", "systemctl"),
    ("no_imex_channel", seen(JOINED, imex="570.86.15", imex_channels=False), "no IMEX channel", "modprobe"),
    (
        "fabric_without_adapter",
        replace(WELL, facts=replace(WELL.facts, fabrics=(FabricFacts("ib-a", ("mlx5_0", "mlx5_9:1")),))),
        "puts mlx5_9:1 on the fabric ib-a",
        "it has mlx5_0, mlx5_2",
    ),
    (
        "fabric_of_two_kinds",
        replace(WELL, facts=replace(WELL.facts, fabrics=(FabricFacts("ib-a", ("mlx5_0:1", "mlx5_2")),))),
        "the fabric ib-a has InfiniBand and RoCE",
        "",
    ),
    ("port_down", seen(port=replace(IB, active=False)), "mlx5_0 port 1 is not active", "subnet manager"),
    ("no_subnet_manager", seen(port=replace(IB, subnet_manager_lid=0)), "knows no subnet manager", ""),
    ("no_routed_gid", seen(port=replace(ROCE, gid_index=None)), "give ens1 an IP address", ""),
    ("port_errors", seen(port=replace(IB, errors=12)), "12 errors", "cable"),
    ("no_peermem", seen(modules=frozenset({"nvidia"})), "nvidia_peermem is not loaded", "modprobe"),
    ("memlock", seen(memlock_bytes=65536), "64 KiB", "LimitMEMLOCK"),
    ("no_avx2", replace(WELL, facts=replace(WELL.facts, vector_extensions=("avx",))), "has no AVX2", "host"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "looked", "sentence", "fix"), CASES)
def test_each_fault_is_found_with_its_fix(code: str, looked: Seen, sentence: str, fix: str) -> None:
    found = [f for f in findings(looked) if f.level is not Level.OK]
    assert [f.reason.code for f in found] == [code], found
    assert sentence in found[0].reason.sentence
    assert fix in found[0].reason.sentence + found[0].reason.command


def test_the_worst_comes_first() -> None:
    looked = seen(replace(GPU, ecc_uncorrected=1, pcie=PcieFacts(5, 8, 5, 16)))
    assert [f.level for f in findings(looked)][:2] == [Level.PROBLEM, Level.WARNING]


def test_a_running_fabric_manager_of_the_drivers_version_is_well() -> None:
    assert faults(seen(SWITCHED, fabric_manager="570.86.15")) == {}
    assert faults(seen(JOINED, imex="570.86.15", imex_channels=True)) == {}
    assert faults(seen(port=ROCE, modules=None, memlock_bytes=None)) == {}
