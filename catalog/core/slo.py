"""What a model promises, as people write it: `slo: {ttft_p99: 2s, tpot_p99: 80ms}`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.fields import Fields

LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Slo:
    """99th percentiles over five minutes, in seconds. None: nothing is promised."""

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None


def read(fields: Fields) -> Slo | None:
    """`slo` of a definition."""
    if fields.take("slo") is None:
        return None
    slo = fields.table("slo")
    found = Slo(
        slo.duration("ttft_p99", 0.0, LONGEST_S) or None,
        slo.duration("tpot_p99", 0.0, LONGEST_S) or None,
    )
    slo.done()
    return found if found != Slo() else None


def written(slo: Slo | None) -> dict[str, str]:
    if slo is None:
        return {}
    return {
        name: _duration(seconds)
        for name, seconds in (("ttft_p99", slo.ttft_p99_s), ("tpot_p99", slo.tpot_p99_s))
        if seconds is not None
    }


def _duration(seconds: float) -> str:
    ms = round(seconds * 1000)
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"
