"""NVIDIA cards by NVML, where its library is there. Other makers' cards are not asked yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from ctypes.util import find_library
from dataclasses import dataclass
from typing import Any, TypeVar

from agent.wire.facts import GpuFacts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cards:
    """`gpus` is None where nobody could be asked; empty where somebody was, and there is none."""

    driver: str | None = None
    gpus: tuple[GpuFacts, ...] | None = None


def found() -> Cards:
    if not _library():
        return Cards()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Cards()
    try:
        gpus = tuple(_card(pynvml, index, handle) for index, handle in enumerate(_by_bus(pynvml)))
        return Cards(_text(_ask(pynvml, pynvml.nvmlSystemGetDriverVersion)), gpus)
    finally:
        _ask(pynvml, pynvml.nvmlShutdown)


def holders(devices: Collection[int]) -> list[set[int]] | None:
    """Of each of `devices` (by bus order) the processes that hold memory on it; None when that cannot be told."""
    if not _library():
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = _by_bus(pynvml)
        if any(d >= len(handles) for d in devices):
            return None
        found = [_holders(pynvml, handles[d]) for d in devices]
        return None if None in found else [pids for pids in found if pids is not None]
    finally:
        _ask(pynvml, pynvml.nvmlShutdown)


def gpu_class(name: str | None, memory_bytes: int | None) -> str | None:
    """`l40s-45g`: the model, and the whole GiB that the driver tells (not those on the box)."""
    if not name or not memory_bytes:
        return None
    words = [w for w in re.split(r"[\s_/-]+", name.lower()) if w not in ("nvidia", "geforce", "tesla", "quadro")]
    model = next((w for w in words if any(c.isdigit() for c in w)), words[0] if words else "gpu")
    return f"{model}-{round(memory_bytes / 2**30)}g"


def _library() -> bool:
    return find_library("nvidia-ml") is not None or _loads("libnvidia-ml.so.1")


def _loads(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


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
    return sorted(handles, key=lambda handle: _bus(nvml, handle))


def _bus(nvml: Any, handle: Any) -> str:
    pci = _ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return (_text(pci.busId) or "") if pci is not None else ""


def _holders(nvml: Any, handle: Any) -> set[int] | None:
    compute = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return None if compute is None else {int(p.pid) for p in compute}


def _card(nvml: Any, index: int, handle: Any) -> GpuFacts:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    utilization = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power = _ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    limit = _ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    name = _text(_ask(nvml, nvml.nvmlDeviceGetName, handle))
    return GpuFacts(
        index=index,
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        name=name,
        gpu_class=gpu_class(name, memory.total if memory is not None else None),
        memory_bytes=memory.total if memory is not None else None,
        memory_free_bytes=memory.free if memory is not None else None,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        temperature_c=_ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=power / 1000 if power is not None else None,
        power_limit_w=limit / 1000 if limit is not None else None,
        utilization_percent=float(utilization.gpu) if utilization is not None else None,
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return str(value) if value else None
