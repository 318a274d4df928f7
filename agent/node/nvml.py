"""NVIDIA cards by NVML, the driver's own library. One figure that a card does not tell costs no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agent.core import cards, smi
from agent.node import gpm
from agent.wire.facts import DomainFacts, GpuFacts, GpuFigures, HolderFacts, NvLink, PcieFacts

T = TypeVar("T")
_MOST_LINKS = 18


@dataclass(frozen=True, slots=True)
class Cards:
    """`gpus` is None where nobody could be asked; empty where somebody was, and there is none."""

    driver: str | None = None
    gpus: tuple[GpuFacts, ...] | None = None
    slow: bool = False
    """The tool told it, which takes a second of a processor each time."""


class NoDriver(Exception):
    """The library is there and does not reach a driver; the sentence is its own."""


def facts() -> Cards | None:
    """None where there is no such library. Raises `NoDriver`."""
    if not _library():
        return None
    with _open() as nvml:
        return Cards(_text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)), _facts(nvml))


def figures() -> tuple[GpuFigures, ...] | None:
    """What moves, of every device; takes a tenth of a second where the card has profiling counters. None where there
    is no such library. Raises `NoDriver`."""
    if not _library():
        return None
    with _open() as nvml:
        handles = _by_bus(nvml)
        cut = {i for i, handle in enumerate(handles) if _cut(nvml, handle)}
        counters = gpm.measured(nvml, {i: handle for i, handle in enumerate(handles) if i not in cut})
        made = []
        for index, handle in enumerate(handles):
            card = _moving(nvml, index, handle, counters.get(index, gpm.Counters()))
            if index not in cut:
                made.append(card)
            for number, instance in _instances(nvml, handle) if index in cut else ():
                memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, instance)
                made.append(
                    GpuFigures(
                        index=cards.instance_index(index, number),
                        memory_free_bytes=memory.free if memory is not None else None,
                        temperature_c=card.temperature_c,
                        power_w=card.power_w,
                    )
                )
        return tuple(made)


def held() -> dict[int, dict[int, int | None]] | None:
    """By device, by process: what it holds there, in bytes; a device that does not tell is absent. None where there is
    no such library. Raises `NoDriver`."""
    if not _library():
        return None
    with _open() as nvml:
        told = ((index, _holders(nvml, handle)) for index, handle in _devices(nvml))
        return {index: {h.pid: h.memory_bytes for h in found} for index, found in told if found is not None}


def _library() -> bool:
    return find_library("nvidia-ml") is not None or _loads("libnvidia-ml.so.1")


def _loads(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


@contextmanager
def _open() -> Iterator[Any]:
    """For one look: a library that stays open keeps a card from being reset, or cut."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        raise NoDriver(f"NVML says: {e}") from None
    try:
        yield pynvml
    finally:
        _ask(pynvml, pynvml.nvmlShutdown)


def _ask(nvml: Any, question: Callable[..., T], *args: Any) -> T | None:
    """One figure that a card does not tell must not cost the others."""
    try:
        return question(*args)
    except nvml.NVMLError:
        return None


def _by_bus(nvml: Any) -> list[Any]:
    """The cards' handles in the order of the PCI bus: CUDA is told to count so too, and NVML need not."""
    count = _ask(nvml, nvml.nvmlDeviceGetCount) or 0
    handles = [h for h in (_ask(nvml, nvml.nvmlDeviceGetHandleByIndex, i) for i in range(count)) if h is not None]
    return sorted(handles, key=lambda handle: _bus(nvml, handle) or "")


def _bus(nvml: Any, handle: Any) -> str | None:
    pci = _ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return cards.kernel_bus_id(_text(pci.busId)) if pci is not None else None


def _devices(nvml: Any) -> list[tuple[int, Any]]:
    """Each device's index and handle: cards, and the instances of those that are cut."""
    made: list[tuple[int, Any]] = []
    for card, handle in enumerate(_by_bus(nvml)):
        made.append((card, handle))
        made += [(cards.instance_index(card, n), h) for n, h in _instances(nvml, handle)]
    return made


def _instances(nvml: Any, card: Any) -> list[tuple[int, Any]]:
    count = _ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0
    handles = ((n, _ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, n)) for n in range(count))
    return [(n, handle) for n, handle in handles if handle is not None]


def _cut(nvml: Any, card: Any) -> bool:
    mode = _ask(nvml, nvml.nvmlDeviceGetMigMode, card)
    return bool(mode and mode[0])


def _moving(nvml: Any, index: int, handle: Any, counters: gpm.Counters) -> GpuFigures:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    utilization = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power = _ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    return GpuFigures(
        index=index,
        memory_free_bytes=memory.free if memory is not None else None,
        temperature_c=_ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=power / 1000 if power is not None else None,
        utilization_percent=float(utilization.gpu) if utilization is not None else None,
        sm_active_percent=counters.sm_active_percent,
        sm_occupancy_percent=counters.sm_occupancy_percent,
        tensor_active_percent=counters.tensor_active_percent,
        dram_active_percent=counters.dram_active_percent,
    )


def _facts(nvml: Any) -> tuple[GpuFacts, ...]:
    handles = _by_bus(nvml)
    buses = {bus: index for index, handle in enumerate(handles) if (bus := _bus(nvml, handle)) is not None}
    made: list[GpuFacts] = []
    for index, handle in enumerate(handles):
        card = _card(nvml, index, handle, buses)
        if not card.mig_enabled:
            made.append(card)
            continue
        instances = [_instance(nvml, card, n, h) for n, h in _instances(nvml, handle)]
        made += instances or [replace(card, problem=smi.NO_INSTANCE)]
    return tuple(made)


def _card(nvml: Any, index: int, handle: Any, buses: dict[str, int]) -> GpuFacts:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    utilization = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power = _ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    limit = _ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    mig = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    remapped = _ask(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    name = _text(_ask(nvml, nvml.nvmlDeviceGetName, handle))
    links, switched = _links(nvml, handle, buses)
    return GpuFacts(
        index=index,
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        name=name,
        gpu_class=cards.gpu_class(name, memory.total if memory is not None else None),
        memory_bytes=memory.total if memory is not None else None,
        memory_free_bytes=memory.free if memory is not None else None,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        temperature_c=_ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=power / 1000 if power is not None else None,
        power_limit_w=limit / 1000 if limit is not None else None,
        utilization_percent=float(utilization.gpu) if utilization is not None else None,
        bus_id=_bus(nvml, handle),
        pcie=_pcie(nvml, handle),
        ecc_uncorrected=_ask(
            nvml,
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
        remap_pending=bool(remapped[2]) if remapped is not None else None,
        mig_enabled=bool(mig[0]) if mig is not None else None,
        mig_pending=bool(mig[1]) if mig is not None else None,
        nvlinks=links,
        switched=switched,
        domain=_domain(nvml, handle),
        holders=_holders(nvml, handle),
    )


def _instance(nvml: Any, card: GpuFacts, number: int, handle: Any) -> GpuFacts:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    profile = cards.profile_of(_text(_ask(nvml, nvml.nvmlDeviceGetName, handle)))
    uuid = _text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle))
    return replace(
        card,
        index=cards.instance_index(card.index, number),
        uuid=uuid,
        memory_bytes=memory.total if memory is not None else None,
        memory_free_bytes=memory.free if memory is not None else None,
        mig_profile=profile,
        gpu_class=cards.instance_class(card.gpu_class, profile),
        utilization_percent=None,
        nvlinks=None,
        switched=None,
        holders=_holders(nvml, handle),
        problem=None if uuid is not None else smi.NO_UUID,
    )


def _pcie(nvml: Any, handle: Any) -> PcieFacts | None:
    made = PcieFacts(
        generation=_ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        width=_ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        card_generation=_ask(nvml, nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration, handle),
        card_width=_ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    )
    return None if made == PcieFacts() else made


def _links(nvml: Any, handle: Any, buses: dict[str, int]) -> tuple[tuple[NvLink, ...] | None, bool | None]:
    """NVLinks that are up, by the card at their other end; and whether they end at a switch."""
    counts: dict[int, int] = {}
    known, switched = False, False
    for link in range(_MOST_LINKS):
        state = _ask(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:
            continue
        known = True
        if not state:
            continue
        kind = _ask(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switched = True
            continue
        remote = _ask(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        peer = buses.get(cards.kernel_bus_id(_text(remote.busId)) or "") if remote is not None else None
        if peer is not None:
            counts[peer] = counts.get(peer, 0) + 1
    if not known:
        return None, None
    return tuple(NvLink(peer, counts[peer]) for peer in sorted(counts)), switched


_DOMAIN_STATES = {1: "Not Started", 2: "In Progress", 3: "Completed"}


def _domain(nvml: Any, handle: Any) -> DomainFacts | None:
    info = nvml.c_nvmlGpuFabricInfo_t()
    if _ask(nvml, nvml.nvmlDeviceGetGpuFabricInfo, handle, nvml.byref(info)) is None:
        return None
    state = _DOMAIN_STATES.get(int(info.state))
    if state is None:
        return None
    cluster = bytes(b & 255 for b in info.clusterUuid[:16]).hex()
    if not cluster.strip("0"):
        return DomainFacts(state)
    named = f"{cluster[:8]}-{cluster[8:12]}-{cluster[12:16]}-{cluster[16:20]}-{cluster[20:]}"
    return DomainFacts(state, named, int(info.cliqueId))


def _holders(nvml: Any, handle: Any) -> tuple[HolderFacts, ...] | None:
    compute = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if compute is None:
        return None
    return tuple(HolderFacts(int(p.pid), p.usedGpuMemory or None) for p in compute)


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return str(value) if value else None
