"""The targets that this run can judge, as ratios to others in the same run. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import Figures


@dataclass(frozen=True, slots=True)
class Target:
    """`value` is judged against `bound`: at least it, or at most it. Absent peers make no verdict."""

    title: str
    value: Callable[[Figures], float]
    bound: float
    at_least: bool
    unit: str


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    value: float | None
    """None: a peer or a workload was not in this run."""

    @property
    def reached(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.target.bound if self.target.at_least else self.value <= self.target.bound


def _edge(name: str) -> Callable[[Figures], float]:
    return lambda f: f["edge"][name].median


def _to_nginx(name: str) -> Callable[[Figures], float]:
    return lambda f: f["edge"][name].median / f["nginx"][name].median


def _beyond_nginx_ms(name: str) -> Callable[[Figures], float]:
    return lambda f: (f["edge"][name].median - f["nginx"][name].median) / 1000


def _ms(name: str) -> Callable[[Figures], float]:
    return lambda f: f["edge"][name].median / 1000


TARGETS = (
    Target("64-token streams, chunks/s", _to_nginx("chunks_per_s"), 0.9, True, "× nginx"),
    Target("added p50 at 50 requests/s", _beyond_nginx_ms("added_p50_us"), 0.7, False, "ms more than nginx"),
    Target("200 paced streams, added TTFT p50", _ms("paced_ttft_p50_us"), 1.0, False, "ms"),
    Target("200 paced streams, added TTFT p99", _ms("paced_ttft_p99_us"), 8.0, False, "ms"),
    Target("200 paced streams, CPU", _to_nginx("paced_cpu_percent"), 1.6, False, "× nginx"),
    Target("memory a stream", _edge("kb_per_stream"), 32.0, False, "KB"),
    Target("10 MB bodies, bytes/s", _to_nginx("large_mb_per_s"), 0.5, True, "× nginx"),
    Target("10 MB bodies, memory", _edge("large_memory"), 2.0, False, "× the body"),
)


def verdicts(figures: Figures) -> list[Verdict]:
    return [Verdict(target, _value(target, figures)) for target in TARGETS]


def _value(target: Target, figures: Figures) -> float | None:
    try:
        return target.value(figures)
    except (KeyError, ZeroDivisionError):
        return None
