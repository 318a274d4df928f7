"""The targets that this run can judge, as ratios to others in the same run. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import Figures


@dataclass(frozen=True, slots=True)
class Target:
    """`value` is judged against `bound`: at least it, or at most it. Absent peers make no verdict, and neither does
    a `paced` load that was not kept up with: who falls behind relays several tokens at once, which is cheap."""

    title: str
    value: Callable[[Figures], float]
    bound: float
    at_least: bool
    unit: str
    paced: bool = False
    timed: bool = True
    """Read from the clock, which other work on the machine disturbs; memory and CPU time it disturbs little."""


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    value: float | None
    """None: a peer or a workload was not in this run, or the pace was not kept."""
    quiet: bool = True

    @property
    def reached(self) -> bool | None:
        if self.value is None or (self.target.timed and not self.quiet):
            return None
        return self.value >= self.target.bound if self.target.at_least else self.value <= self.target.bound


def _ours(figures: Figures, name: str) -> float:
    """Of the edge in its compiled form where that was measured."""
    return figures["compiled" if "compiled" in figures else "edge"][name].median


def _edge(name: str) -> Callable[[Figures], float]:
    return lambda f: _ours(f, name)


def _to_nginx(name: str) -> Callable[[Figures], float]:
    return lambda f: _ours(f, name) / f["nginx"][name].median


def _to(peer: str, name: str) -> Callable[[Figures], float]:
    return lambda f: _ours(f, name) / f[peer][name].median


def _beyond_nginx_ms(name: str) -> Callable[[Figures], float]:
    return lambda f: (_ours(f, name) - f["nginx"][name].median) / 1000


def _ms(name: str) -> Callable[[Figures], float]:
    return lambda f: _ours(f, name) / 1000


TARGETS = (
    Target("non-streamed requests/s", _to("sglang-cache", "requests_per_s"), 1.0, True, "× sglang-router cache_aware"),
    Target("non-streamed requests/s", _to("litellm", "requests_per_s"), 100.0, True, "× LiteLLM"),
    Target("64-token streams, chunks/s", _to("sglang-cache", "chunks_per_s"), 6.0, True, "× sglang-router cache_aware"),
    Target("64-token streams, chunks/s", _to_nginx("chunks_per_s"), 0.9, True, "× nginx"),
    Target("added p50 at 50 requests/s", _beyond_nginx_ms("added_p50_us"), 0.7, False, "ms more than nginx"),
    Target("200 paced streams, added TTFT p50", _ms("paced_ttft_p50_us"), 1.0, False, "ms"),
    Target("200 paced streams, added TTFT p99", _ms("paced_ttft_p99_us"), 8.0, False, "ms"),
    Target("200 paced streams, CPU", _to_nginx("paced_cpu_us"), 1.6, False, "× nginx", paced=True, timed=False),
    Target("memory a stream", _edge("kb_per_stream"), 32.0, False, "KB", timed=False),
    Target("10 MB bodies, bytes/s", _to_nginx("large_mb_per_s"), 0.5, True, "× nginx"),
    Target("10 MB bodies, memory", _edge("large_memory"), 2.0, False, "× the body", timed=False),
)


def verdicts(figures: Figures, *, quiet: bool) -> list[Verdict]:
    """`quiet`: others left the machine alone, so that the clock can be believed."""
    return [Verdict(target, _value(target, figures), quiet) for target in TARGETS]


def _value(target: Target, figures: Figures) -> float | None:
    try:
        if target.paced and not _pace_kept(figures):
            return None
        return target.value(figures)
    except (KeyError, ZeroDivisionError):
        return None


def _pace_kept(figures: Figures) -> bool:
    """Whether the edge relayed what the engine sent, to a twentieth."""
    name = "paced_tokens_per_s"
    return _ours(figures, name) >= 0.95 * figures["direct"][name].median
