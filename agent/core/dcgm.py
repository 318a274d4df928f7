"""Reader of what a dcgm-exporter prints: the profiling counters of cards that NVML does not tell them of. Pure.

A share of 1 is told, and per cents are kept. Series of a MIG instance are left out: they are not their card's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = {
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active_percent",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy_percent",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active_percent",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active_percent",
}
_LINE = re.compile(r"(DCGM_FI_PROF_\w+)\{([^}]*)\}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class Profile:
    """Of one card, in per cent."""

    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None


def read(text: str) -> dict[str, Profile]:
    """By the cards' UUIDs; what does not fit is left out."""
    found: dict[str, Profile] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        name = _NAMES.get(match[1]) if match is not None else None
        if match is None or name is None:
            continue
        labels = dict(_LABEL.findall(match[2]))
        uuid, value = labels.get("UUID"), _percent(match[3])
        if uuid and uuid.startswith("GPU-") and not labels.get("GPU_I_ID") and value is not None:
            setattr(found.setdefault(uuid, Profile()), name, value)
    return found


def _percent(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return round(100 * share, 1) if 0 <= share <= 1 else None
