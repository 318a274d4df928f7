"""Machines that a world may be made of: a template and a number give the facts that a real one would tell. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.core.cards import gpu_class, instance_class, instance_index
from agent.rehearsal.values import LABEL
from agent.wire.facts import EngineFacts, FabricFacts, GpuFacts, NodeFacts, NvLink, PcieFacts, PortFacts

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Template:
    """`cards` and so on of one machine; figures are the makers'."""

    what: str
    cards: int
    card_name: str
    card_bytes: int
    capability: str
    power_w: float
    nvlink: str
    """`switch`: each card with each; `pairs`: bridges; empty: none."""
    adapters: int
    """InfiniBand ports of 400 Gbit/s."""
    cpus: int
    memory_bytes: int
    disk_bytes: int
    vectors: tuple[str, ...]
    cpu_model: str = "pretended x86 server"
    arch: str = "x86_64"


_H200, _L40S = ("NVIDIA H200", 143771, "9.0"), ("NVIDIA L40S", 46068, "8.9")
_RTX4090 = ("NVIDIA GeForce RTX 4090", 24564, "8.9")
"""Name, MiB, compute capability."""
_SERVER, _DESK = ("avx", "avx2", "avx512f", "avx512_vnni", "amx_tile"), ("avx", "avx2")

# fmt: off
_ROWS = (
    # name, what, cards, of, watts, nvlink, adapters, cpus, memory and disk (GiB), vectors
    ("h200x8", "eight H200 joined by NVSwitch, eight InfiniBand ports",
     8, _H200, 700, "switch", 8, 192, 2048, 28000, _SERVER),
    ("h200x2", "two H200 NVL joined by a bridge", 2, _H200, 600, "pairs", 1, 64, 512, 4000, _SERVER),
    ("l40sx4", "four L40S on PCIe", 4, _L40S, 350, "", 0, 64, 512, 4000, _SERVER),
    ("l40s", "one L40S", 1, _L40S, 350, "", 0, 32, 256, 4000, _SERVER),
    ("rtx4090", "a workstation with one RTX 4090", 1, _RTX4090, 450, "", 0, 16, 64, 1000, _DESK),
    ("cpu", "a server without cards", 0, ("", 0, ""), 0, "", 0, 64, 256, 4000, _SERVER),
    ("laptop", "a laptop without a card", 0, ("", 0, ""), 0, "", 0, 8, 16, 200, _DESK),
)
# fmt: on
TEMPLATES = {
    name: Template(
        what, n, of[0], of[1] * 2**20, of[2], watts, nvlink, adapters, cpus, memory * GIB, disk * GIB, vectors
    )
    for name, what, n, of, watts, nvlink, adapters, cpus, memory, disk, vectors in _ROWS
}

MIG = re.compile(r"([1-7])g\.\d+gb")


@dataclass(frozen=True, slots=True)
class Cut:
    """A card of the machine that is cut into instances by these profiles."""

    card: int
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a world says of one node beside its template."""

    id: str
    address: str
    labels: dict[str, str]
    fabric: str = ""
    cuts: tuple[Cut, ...] = ()
    engines: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()


def facts(template: Template, wish: Wish, versions: Callable[[str], str] = lambda name: "0+pretended") -> NodeFacts:
    """What the agent of this machine tells."""
    ports = _ports(template, wish)
    cards = _cards(template, wish)
    return NodeFacts(
        hostname=wish.id,
        address=wish.address,
        os="pretended Linux",
        arch=template.arch,
        boot_id=f"boot-{wish.id}-1",
        cpu_count=template.cpus,
        cpu_model=template.cpu_model,
        vector_extensions=template.vectors,
        memory_bytes=template.memory_bytes,
        memory_free_bytes=template.memory_bytes * 9 // 10,
        disk_bytes=template.disk_bytes,
        disk_free_bytes=template.disk_bytes * 8 // 10,
        ports_taken=(),
        driver="pretended" if cards else None,
        labels={**wish.labels, LABEL: "yes"},
        gpus=cards,
        rdma_ports=ports,
        engines=tuple(
            EngineFacts(name, version=versions(name), build="pretended", path=f"/pretended/{name}")
            for name in wish.engines
        ),
        fabrics=(FabricFacts(wish.fabric, tuple(f"{p.adapter}:{p.port}" for p in ports)),) if wish.fabric else (),
        weights=wish.weights,
    )


def slices(profiles: Sequence[str]) -> int:
    """Of a card's seven, as many as these profiles take."""
    return sum(int(m[1]) for p in profiles if (m := MIG.fullmatch(p)))


def _cards(template: Template, wish: Wish) -> tuple[GpuFacts, ...]:
    cuts = {cut.card: cut.profiles for cut in wish.cuts}
    found: list[GpuFacts] = []
    for index in range(template.cards):
        card = GpuFacts(
            index=index,
            uuid=f"GPU-{_digest(wish.id, index)}",
            name=template.card_name,
            gpu_class=gpu_class(template.card_name, template.card_bytes),
            memory_bytes=template.card_bytes,
            memory_free_bytes=template.card_bytes,
            compute_capability=template.capability,
            temperature_c=35,
            power_w=template.power_w / 8,
            power_limit_w=template.power_w,
            utilization_percent=0.0,
            bus_id=f"0000:{0x10 + index:02x}:00.0",
            numa_node=index * 2 // max(template.cards, 1),
            pcie=PcieFacts(5, 16, 5, 16),
            ecc_uncorrected=0,
            remap_pending=False,
            mig_enabled=False,
            mig_pending=False,
            nvlinks=_links(template, index),
            switched=template.nvlink == "switch" or None,
            holders=(),
        )
        found += _instances(card, cuts[index]) if index in cuts else [card]
    return tuple(found)


def _instances(card: GpuFacts, profiles: Sequence[str]) -> list[GpuFacts]:
    made = []
    for number, profile in enumerate(profiles):
        share = int(profile[0]) / 7
        memory = int((card.memory_bytes or 0) * share)
        made.append(
            replace(
                card,
                index=instance_index(card.index, number),
                uuid=f"MIG-{_digest(str(card.uuid), number)}",
                gpu_class=instance_class(card.gpu_class, profile),
                memory_bytes=memory,
                memory_free_bytes=memory,
                mig_profile=profile,
                mig_enabled=True,
                nvlinks=None,
                switched=None,
                utilization_percent=None,
            )
        )
    return made


def _links(template: Template, index: int) -> tuple[NvLink, ...] | None:
    if template.nvlink == "switch":
        return ()
    if template.nvlink == "pairs" and (index ^ 1) < template.cards:
        return (NvLink(index ^ 1, 4),)
    return () if template.cards else None


def _ports(template: Template, wish: Wish) -> tuple[PortFacts, ...]:
    return tuple(
        PortFacts(
            adapter=f"mlx5_{n}",
            port=1,
            kind="infiniband",
            active=True,
            rate_gbps=400.0,
            numa_node=n * 2 // template.adapters,
            bus_id=f"0000:{0x80 + n:02x}:00.0",
            subnet_prefix="0xfe80000000000000",
            subnet_manager=_digest(wish.fabric or "alone", 0)[:16],
            subnet_manager_lid=1,
            errors=0,
        )
        for n in range(template.adapters)
    )


def _digest(name: str, number: int) -> str:
    return hashlib.sha256(f"{name}/{number}".encode()).hexdigest()[:32]
