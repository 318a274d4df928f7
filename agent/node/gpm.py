"""How much of a card works, by its profiling counters: NVML's GPM, on Hopper and later, with nothing to install."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BETWEEN_S = 0.1
"""Two samples nearer to one another give no figures."""


@dataclass(frozen=True, slots=True)
class Counters:
    """In per cent; an absent one is unknown."""

    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None


def measured(nvml: Any, handles: Mapping[int, Any]) -> dict[int, Counters]:
    """Of each card that has them, over a tenth of a second. Never of one that is cut: its counters are nobody's."""
    able = {i: handle for i, handle in handles.items() if _supported(nvml, handle)}
    if not able:
        return {}
    samples: list[Any] = []
    try:
        first = {i: _sample(nvml, handle, samples) for i, handle in able.items()}
        time.sleep(_BETWEEN_S)
        second = {i: _sample(nvml, handle, samples) for i, handle in able.items()}
        pairs = {i: (first[i], second[i]) for i in able}
        return {i: _between(nvml, a, b) for i, (a, b) in pairs.items() if a is not None and b is not None}
    finally:
        for sample in samples:
            _ask(nvml, nvml.nvmlGpmSampleFree, sample)


def _supported(nvml: Any, handle: Any) -> bool:
    told = _ask(nvml, nvml.nvmlGpmQueryDeviceSupport, handle)
    return bool(told is not None and told.isSupportedDevice)


def _sample(nvml: Any, handle: Any, samples: list[Any]) -> Any:
    sample = _ask(nvml, nvml.nvmlGpmSampleAlloc)
    if sample is None:
        return None
    samples.append(sample)
    return _ask(nvml, nvml.nvmlGpmSampleGet, handle, sample)


def _between(nvml: Any, first: Any, second: Any) -> Counters:
    wanted = (
        nvml.NVML_GPM_METRIC_SM_UTIL,
        nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
        nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    )
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = len(wanted)
    asked.sample1, asked.sample2 = first, second
    for place, number in enumerate(wanted):
        asked.metrics[place].metricId = number
    if _ask(nvml, nvml.nvmlGpmMetricsGet, asked) is None:
        return Counters()
    told = [asked.metrics[place] for place in range(len(wanted))]
    return Counters(*(_percent(m.value) if m.nvmlReturn == nvml.NVML_SUCCESS else None for m in told))


def _percent(value: float) -> float | None:
    """Neither a counter that has not run yet (not a number) nor one that ran over."""
    return round(value, 1) if 0 <= value <= 100 else None


def _ask(nvml: Any, question: Any, *args: Any) -> Any:
    """An older library lacks the question itself, which its binding tells as an error too."""
    try:
        return question(*args)
    except nvml.NVMLError:
        return None
