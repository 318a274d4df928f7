"""NVIDIA cards: by NVML, where its library is there, else by nvidia-smi; both tell the same facts. Other makers' cards
are not asked yet. Every question may take as long as a driver that has lost a card does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.core import cards, proc, smi
from agent.node import nvml, tools
from agent.node.nvml import Cards
from agent.wire.facts import GpuFacts, GpuFigures

_SMI_S = 30.0
"""A driver that has lost a card answers late."""


class NotTold(Exception):
    """There is a driver's library or tool, and it does not answer; the sentence says how."""


def facts(command: str = "nvidia-smi") -> Cards:
    """Without what stands beside the cards. Raises `NotTold`."""
    why = ""
    try:
        told = nvml.facts()
    except nvml.NoDriver as e:
        told, why = None, str(e)
    if told is not None and told.gpus is not None:
        return told
    found = _by_smi(command)
    if found.gpus is None and why:
        raise NotTold(why)
    return found


def figures(command: str = "nvidia-smi") -> tuple[GpuFigures, ...] | None:
    """What moves, of every device; None where nobody tells."""
    try:
        told = nvml.figures()
    except nvml.NoDriver:
        told = None
    if told is not None:
        return told
    gpus = _by_smi(command).gpus
    return None if gpus is None else tuple(cards.figures(gpu) for gpu in gpus)


def held(command: str = "nvidia-smi") -> dict[int, dict[int, int | None]] | None:
    """By device, by process: what it holds there, in bytes (None: something). A device that does not tell is absent;
    None where nobody tells."""
    try:
        told = nvml.held()
    except nvml.NoDriver:
        told = None
    if told is not None:
        return told
    gpus = _by_smi(command).gpus
    if gpus is None:
        return None
    return {g.index: {h.pid: h.memory_bytes for h in g.holders} for g in gpus if g.holders is not None}


def topology(command: str = "nvidia-smi") -> dict[int, smi.Near]:
    """What stands beside each card. It changes with a boot, and asking takes seconds."""
    return smi.topology(tools.said([command, *smi.TOPOLOGY], _SMI_S) or "")


def placed(gpu: GpuFacts, near: dict[int, smi.Near], root: Path = Path("/")) -> GpuFacts:
    """With what stands beside the card: NUMA node and the machine's memory by the kernel, adapters and NVLink by the
    tool's matrix."""
    gpu = cards.unified(gpu, _memory(root))
    card = cards.card_of(gpu.index)
    by_tool = near.get(card)
    numa = _numa(gpu.bus_id, root)
    if numa is None and by_tool is not None:
        numa = by_tool.numa_node
    links = gpu.nvlinks
    if links is None and by_tool is not None and not gpu.mig_enabled:
        links = by_tool.nvlinks
    return replace(gpu, numa_node=numa, adapters=by_tool.adapters if by_tool is not None else None, nvlinks=links)


def _by_smi(command: str) -> Cards:
    text = tools.said([command, *smi.QUERY], _SMI_S)
    if text is None:
        return Cards()
    said = smi.query(text, tools.said([command, *smi.LIST], _SMI_S) or "")
    return Cards(said.driver, said.gpus, slow=True) if said is not None else Cards()


def _numa(bus_id: str | None, root: Path) -> int | None:
    if bus_id is None:
        return None
    try:
        found = int((root / f"sys/bus/pci/devices/{bus_id}/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return found if found >= 0 else None


def _memory(root: Path) -> dict[str, int]:
    try:
        return proc.meminfo((root / "proc/meminfo").read_text())
    except OSError:
        return {}
