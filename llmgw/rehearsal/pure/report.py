"""What a week came to, in figures that can be laid beside another's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmgw.rehearsal.pure.week import Found


@dataclass(frozen=True, slots=True)
class Report:
    """`cost` None: nobody said what a card's hour costs."""

    requests: int
    refused: int
    waited: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    gpu_hours: dict[str, float]
    starts: int
    cost: float | None

    @property
    def refused_share(self) -> float:
        return self.refused / self.requests if self.requests else 0.0

    def told(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "refused": self.refused,
            "refused_percent": round(100 * self.refused_share, 3),
            "waited_over_1_s": self.waited,
            "ttft_p50_s": _short(self.ttft_p50_s),
            "ttft_p95_s": _short(self.ttft_p95_s),
            "gpu_hours": round(sum(self.gpu_hours.values()), 1),
            "gpu_hours_by_class": {k: round(v, 1) for k, v in sorted(self.gpu_hours.items())},
            "starts": self.starts,
            "cost": None if self.cost is None else round(self.cost, 2),
        }


def report(found: Found, hour_costs: Mapping[str, float]) -> Report:
    """`hour_costs`: of a card's hour, by the beginning of its class (`h200`)."""
    times = sorted(t for s in found.served.values() for t in s.ttft_s)
    costs = [_hour(c, hour_costs) for c in found.gpu_hours]
    known = hour_costs and all(c is not None for c in costs)
    return Report(
        requests=sum(s.asked for s in found.served.values()),
        refused=sum(s.refused for s in found.served.values()),
        waited=sum(s.waited for s in found.served.values()),
        ttft_p50_s=percentile(times, 0.5),
        ttft_p95_s=percentile(times, 0.95),
        gpu_hours=dict(found.gpu_hours),
        starts=found.starts.total(),
        cost=sum(h * (_hour(c, hour_costs) or 0.0) for c, h in found.gpu_hours.items()) if known else None,
    )


def by_model(found: Found) -> list[dict[str, Any]]:
    rows = []
    for name, served in sorted(found.served.items()):
        times = sorted(served.ttft_s)
        rows.append(
            {
                "model": name,
                "requests": served.asked,
                "refused": served.refused,
                "ttft_p50_s": _short(percentile(times, 0.5)),
                "ttft_p95_s": _short(percentile(times, 0.95)),
                "starts": found.starts[name],
            }
        )
    return rows


def percentile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def _hour(gpu_class: str, costs: Mapping[str, float]) -> float | None:
    fitting = [name for name in costs if gpu_class.startswith(name)]
    return costs[max(fitting, key=len)] if fitting else None


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
