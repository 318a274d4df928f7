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
    cards: int = 0
    card_name: str = ""
    card_bytes: int = 0
    capability: str = ""
    power_w: float = 0.0
    nvlink: str = ""
    """`switch`: each card with each; `pairs`: bridges; empty: none."""
    adapters: int = 0
    """InfiniBand ports of 400 Gbit/s."""
    cpus: int = 64
    cpu_model: str = "pretended x86 server"
    vectors: tuple[str, ...] = ("avx", "avx2", "avx512f", "avx512_vnni", "amx_tile")
    memory_bytes: int = 512 * GIB
    disk_bytes: int = 4000 * GIB
    arch: str = "x86_64"


TEMPLATES = {
    "h200x8": Template(
        "eight H200 joined by NVSwitch, eight InfiniBand ports",
        cards=8,
        card_name="NVIDIA H200",
        card_bytes=143771 * 2**20,
        capability="9.0",
        power_w=700,
        nvlink="switch",
        adapters=8,
        cpus=192,
        memory_bytes=2048 * GIB,
        disk_bytes=28000 * GIB,
    ),
    "h200x2": Template(
        "two H200 NVL joined by a bridge",
        cards=2,
        card_name="NVIDIA H200",
        card_bytes=143771 * 2**20,
        capability="9.0",
        power_w=600,
        nvlink="pairs",
        adapters=1,
        cpus=64,
    ),
    "l40sx4": Template(
        "four L40S on PCIe",
        cards=4,
        card_name="NVIDIA L40S",
        card_bytes=46068 * 2**20,
        capability="8.9",
        power_w=350,
        cpus=64,
        memory_bytes=512 * GIB,
    ),
    "l40s": Template(
        "one L40S",
        cards=1,
        card_name="NVIDIA L40S",
        card_bytes=46068 * 2**20,
        capability="8.9",
        power_w=350,
        cpus=32,
        memory_bytes=256 * GIB,
    ),
    "rtx4090": Template(
        "a workstation with one RTX 4090",
        cards=1,
        card_name="NVIDIA GeForce RTX 4090",
        card_bytes=24564 * 2**20,
        capability="8.9",
        power_w=450,
        cpus=16,
        memory_bytes=64 * GIB,
        disk_bytes=1000 * GIB,
        vectors=("avx", "avx2"),
    ),
    "cpu": Template("a server without cards", cpus=64, memory_bytes=256 * GIB),
    "laptop": Template(
        "a laptop without a card",
        cpus=8,
        memory_bytes=16 * GIB,
        disk_bytes=200 * GIB,
        vectors=("avx", "avx2"),
    ),
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
