"""Readers of what nvidia-smi prints. Pure: texts in, facts out; what does not fit is unknown, never zero.

`nvidia-smi -q -x` (its DTD is nvsmi_device_v11 or v12), `nvidia-smi -L` for the ids of MIG instances, and
`nvidia-smi topo -m` for NVLink and what is near to what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from agent.core import cards
from agent.wire.facts import DomainFacts, GpuFacts, HolderFacts, NvLink, PcieFacts

QUERY = ("-q", "-x")
LIST = ("-L",)
TOPOLOGY = ("topo", "-m")
_NUMBER = re.compile(r"\s*([+-]?\d+(?:[.,]\d+)?)\s*([A-Za-z/%]*)")
_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 2**10, "mb": 2**20, "gb": 2**30}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""How far a card and an adapter are from one another, the nearest first."""
NO_INSTANCE = "its MIG mode is on and it has no instance: nvidia-smi mig -cgi … -C makes one"
NO_UUID = "the driver does not tell this MIG instance's id, without which no engine can be put on it"


@dataclass(frozen=True, slots=True)
class Said:
    """Of `nvidia-smi -q -x`."""

    driver: str | None = None
    gpus: tuple[GpuFacts, ...] = ()


def query(text: str, listing: str = "") -> Said | None:
    """None where the text is no such document (cut short, an error message). `listing` is `nvidia-smi -L`'s: the
    document has neither the ids of MIG instances nor their profiles."""
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - the driver's own tool on this machine wrote it
    except (ElementTree.ParseError, ValueError):
        return None
    if root.tag != "nvidia_smi_log":
        return None
    nodes = sorted(root.findall("gpu"), key=lambda node: cards.kernel_bus_id(_bus(node)) or "")
    named = _listed(listing)
    found: list[GpuFacts] = []
    for index, node in enumerate(nodes):
        card = _card(index, node)
        instances = _instances(card, node, named)
        found += instances or [replace(card, problem=NO_INSTANCE) if card.mig_enabled else card]
    return Said(_text(root, "driver_version"), tuple(found))


@dataclass(frozen=True, slots=True)
class _Instance:
    uuid: str
    profile: str | None


def _listed(listing: str) -> dict[tuple[str, int], _Instance]:
    """Instances by their card's uuid and their own number."""
    found: dict[tuple[str, int], _Instance] = {}
    card = ""
    for line in listing.splitlines():
        if head := re.match(r"GPU \d+:.*\(UUID:\s*(GPU-[\w-]+)\)", line):
            card = head[1]
        elif one := re.match(r"\s+MIG\s+(\S+)\s+Device\s+(\d+):\s*\(UUID:\s*(MIG-[\w/-]+)\)", line):
            found[card, int(one[2])] = _Instance(one[3], cards.profile_of(f"MIG {one[1]}"))
    return found


@dataclass(frozen=True, slots=True)
class Near:
    """Of one card, by `nvidia-smi topo -m`."""

    nvlinks: tuple[NvLink, ...] = ()
    adapters: tuple[str, ...] | None = None
    numa_node: int | None = None


def topology(text: str) -> dict[int, Near]:
    """By card. Empty where the text is no matrix."""
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    head: list[str] = []
    rows: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for line in lines:
        if found := re.match(r"\s*(NIC\d+):\s*(\S+)\s*$", line):
            names[found[1]] = found[2]
        cells = [cell.strip() for cell in line.split("\t")]
        if not head and "GPU0" in cells:
            head = cells
        elif head and re.fullmatch(r"GPU\d+", cells[0]):
            rows[cells[0]] = cells
    return {int(row[3:]): _near(row, head, cells, names) for row, cells in rows.items()}


def _near(row: str, head: list[str], cells: list[str], names: dict[str, str]) -> Near:
    links, by_distance, numa = [], dict[str, list[str]](), None
    for title, cell in zip(head[1:], cells[1:], strict=False):
        if re.fullmatch(r"GPU\d+", title) and (found := re.fullmatch(r"NV(\d+)", cell)):
            links.append(NvLink(int(title[3:]), int(found[1])))
        elif re.fullmatch(r"NIC\d+|mlx\w+", title):
            by_distance.setdefault(cell, []).append(names.get(title, title))
        elif title == "NUMA Affinity" and re.fullmatch(r"\d+", cell):
            numa = int(cell)
    nearest = next((by_distance[d] for d in _NEAR if d in by_distance), None)
    return Near(tuple(links), tuple(nearest) if nearest is not None else None, numa)


# -- one card


def _card(index: int, node: ElementTree.Element) -> GpuFacts:
    name, memory = _text(node, "product_name"), _bytes(node, "fb_memory_usage/total")
    free = _bytes(node, "fb_memory_usage/free")
    return GpuFacts(
        index=index,
        uuid=_text(node, "uuid"),
        name=name,
        gpu_class=cards.gpu_class(name, memory),
        memory_bytes=memory,
        memory_free_bytes=free,
        temperature_c=_whole(node, "temperature/gpu_temp"),
        power_w=_first(node, _POWER),
        power_limit_w=_first(node, _LIMIT),
        utilization_percent=_number(node, "utilization/gpu_util"),
        bus_id=cards.kernel_bus_id(_bus(node)),
        pcie=_pcie(node),
        ecc_uncorrected=_uncorrected(node),
        remap_pending=_flag(node, "remapped_rows/remapped_row_pending", "Yes", "No"),
        mig_enabled=_flag(node, "mig_mode/current_mig", "Enabled", "Disabled"),
        mig_pending=_flag(node, "mig_mode/pending_mig", "Enabled", "Disabled"),
        domain=_domain(node),
        holders=_holders(node),
    )


_POWER = (
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/power_draw",
    "gpu_power_readings/average_power_draw",
    "power_readings/power_draw",
)
_LIMIT = (
    "gpu_power_readings/current_power_limit",
    "power_readings/enforced_power_limit",
    "power_readings/power_limit",
)


def _instances(card: GpuFacts, node: ElementTree.Element, named: Mapping[tuple[str, int], _Instance]) -> list[GpuFacts]:
    found = []
    for instance in node.findall("mig_devices/mig_device"):
        number = _whole(instance, "index")
        if number is None:
            continue
        told = named.get((card.uuid or "", number))
        profile = told.profile if told is not None else None
        found.append(
            replace(
                card,
                index=cards.instance_index(card.index, number),
                uuid=told.uuid if told is not None else None,
                memory_bytes=_bytes(instance, "fb_memory_usage/total"),
                memory_free_bytes=_bytes(instance, "fb_memory_usage/free"),
                mig_profile=profile,
                gpu_class=cards.instance_class(card.gpu_class, profile),
                utilization_percent=None,
                holders=_of_instance(card, node, _text(instance, "gpu_instance_id")),
                problem=None if told is not None else NO_UUID,
            )
        )
    return found


def _of_instance(card: GpuFacts, node: ElementTree.Element, instance: str | None) -> tuple[HolderFacts, ...] | None:
    if card.holders is None or instance is None:
        return None
    mine = {
        _whole(p, "pid") for p in node.iterfind("processes/process_info") if _text(p, "gpu_instance_id") == instance
    }
    return tuple(holder for holder in card.holders if holder.pid in mine)


def _pcie(node: ElementTree.Element) -> PcieFacts | None:
    link = node.find("pci/pci_gpu_link_info")
    if link is None:
        return None
    found = PcieFacts(
        generation=_whole(link, "pcie_gen/max_link_gen"),
        width=_whole(link, "link_widths/current_link_width"),
        card_generation=_whole(link, "pcie_gen/max_device_link_gen"),
        card_width=_whole(link, "link_widths/max_link_width"),
    )
    return None if found == PcieFacts() else found


def _uncorrected(node: ElementTree.Element) -> int | None:
    """Newer drivers tell SRAM and DRAM apart, older ones give a total."""
    volatile = node.find("ecc_errors/volatile")
    if volatile is None:
        return None
    named = ("dram_uncorrectable", "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
    counts = [count for name in named if (count := _whole(volatile, name)) is not None]
    if counts:
        return sum(counts)
    return _whole(volatile, "double_bit/total")


def _domain(node: ElementTree.Element) -> DomainFacts | None:
    fabric = node.find("fabric")
    if fabric is None:
        return None
    state, cluster = _text(fabric, "state"), _text(fabric, "clusterUuid") or _text(fabric, "cluster_uuid")
    if state is None or state == "Not Supported":
        return None
    if cluster is not None and not cluster.strip("0-"):
        cluster = None
    clique = _whole(fabric, "cliqueId")
    return DomainFacts(
        state, cluster, (clique if clique is not None else _whole(fabric, "clique_id")) if cluster else None
    )


def _holders(node: ElementTree.Element) -> tuple[HolderFacts, ...] | None:
    listed = node.find("processes")
    if listed is None or (listed.text or "").strip():  # "N/A"
        return None
    found = []
    for process in listed.findall("process_info"):
        pid = _whole(process, "pid")
        if pid is not None:
            found.append(HolderFacts(pid, _bytes(process, "used_memory")))
    return tuple(found)


# -- words and figures


def _bus(node: ElementTree.Element) -> str | None:
    return _text(node, "pci/pci_bus_id") or node.get("id")


def _text(node: ElementTree.Element, path: str) -> str | None:
    """None for what the driver does not say: `N/A`, `[N/A]`, `[Not Supported]`, `ERR!`, `[Unknown Error]`."""
    found = node.find(path)
    text = (found.text or "").strip() if found is not None else ""
    if not text or text.strip("[]").lower() in ("n/a", "not supported", "err!", "unknown error", "gpu is lost", "none"):
        return None
    return text


def _parts(node: ElementTree.Element, path: str) -> tuple[float, str] | None:
    """A figure and its unit. Some locales write a decimal comma."""
    text = _text(node, path)
    found = _NUMBER.match(text) if text is not None else None
    return (float(found[1].replace(",", ".")), found[2].lower()) if found else None


def _number(node: ElementTree.Element, path: str) -> float | None:
    found = _parts(node, path)
    return found[0] if found else None


def _first(node: ElementTree.Element, paths: Iterable[str]) -> float | None:
    return next((found for path in paths if (found := _number(node, path)) is not None), None)


def _whole(node: ElementTree.Element, path: str) -> int | None:
    found = _number(node, path)
    return int(found) if found is not None else None


def _bytes(node: ElementTree.Element, path: str) -> int | None:
    found = _parts(node, path)
    return int(found[0] * _UNITS[found[1]]) if found and found[1] in _UNITS else None


def _flag(node: ElementTree.Element, path: str, yes: str, no: str) -> bool | None:
    return {yes: True, no: False}.get(_text(node, path) or "")
