"""What cards are called and numbered. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from agent.wire.facts import INSTANCES, GpuFacts, GpuFigures, HolderFacts, NodeFacts

GIB = 2**30
_UNIFIED = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra)\b", re.IGNORECASE)
_MAKERS = ("nvidia", "geforce", "tesla", "quadro")


def gpu_class(name: str | None, memory_bytes: int | None) -> str | None:
    """`l40s-45g`: the model, and the whole GiB that the driver tells (not those on the box)."""
    if not name or not memory_bytes:
        return None
    words = [w for w in re.split(r"[\s_/-]+", name.lower()) if w not in _MAKERS]
    model = next((w for w in words if any(c.isdigit() for c in w)), words[0] if words else "gpu")
    return f"{model}-{round(memory_bytes / GIB)}g"


def instance_class(card: str | None, profile: str | None) -> str | None:
    """`a100-80g-mig-3g.40gb`: the card's class and the profile it is cut by."""
    if card is None or profile is None:
        return None
    return f"{card}-mig-{profile.lower().replace('+', '-')}"


def instance_index(card: int, instance: int) -> int:
    return INSTANCES + 100 * card + instance


def profile_of(name: str | None) -> str | None:
    """Of an instance's name (`NVIDIA A100-SXM4-80GB MIG 3g.40gb`)."""
    found = re.search(r"\bMIG\s+(?:\d+c\.)?(\d+g\.\d+gb(?:\+[\w.]+)*)", name or "", re.IGNORECASE)
    return found[1].lower() if found else None


def kernel_bus_id(bus_id: str | None) -> str | None:
    """`00000000:18:00.0` as the driver writes it, `0000:18:00.0` as sysfs does."""
    found = re.fullmatch(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])", bus_id or "")
    if found is None:
        return None
    domain = int(found[1] or "0", 16)
    return f"{domain:04x}:{found[2]}:{found[3]}.{found[4]}".lower()


def card_of(index: int) -> int:
    """The card that a device is, or is cut from."""
    return index if index < INSTANCES else (index - INSTANCES) // 100


def unified(gpu: GpuFacts, memory: Mapping[str, int]) -> GpuFacts:
    """A chip that computes in the machine's own memory, of which its driver therefore tells none: with what the machine
    has (`memory`: bytes by /proc/meminfo's names). Any other card is as it was: a memory not told is unknown."""
    total = memory.get("MemTotal")
    if gpu.memory_bytes is not None or not total or not _UNIFIED.search(gpu.name or ""):
        return gpu
    free = memory.get("MemAvailable")
    return replace(gpu, memory_bytes=total, memory_free_bytes=free, unified=True, gpu_class=gpu_class(gpu.name, total))


def figures(gpu: GpuFacts) -> GpuFigures:
    """What moves of it."""
    return GpuFigures(**{name: getattr(gpu, name) for name in _MOVING}, index=gpu.index)


def still(gpu: GpuFacts) -> GpuFacts:
    """Without what moves of it."""
    return replace(gpu, **_UNKNOWN)


def lasting(facts: NodeFacts) -> NodeFacts:
    """Without the figures that heartbeats carry. A card's free memory counts by whole GiB: what is placed on it rests
    on the report."""
    gpus = facts.gpus and tuple(
        replace(
            still(gpu),
            memory_free_bytes=None if gpu.memory_free_bytes is None else gpu.memory_free_bytes >> 30,
            holders=gpu.holders and tuple(sorted((HolderFacts(h.pid) for h in gpu.holders), key=lambda h: h.pid)),
        )
        for gpu in facts.gpus
    )
    return replace(facts, memory_free_bytes=None, disk_free_bytes=None, gpus=gpus)


def sum_of(held: Iterable[int | None]) -> int | None:
    """Of what several processes hold; None where one holds something whose size is not told."""
    total = 0
    for one in held:
        if one is None:
            return None
        total += one
    return total


_MOVING = tuple(f.name for f in fields(GpuFigures) if f.name != "index")
_UNKNOWN: dict[str, Any] = dict.fromkeys(_MOVING)
