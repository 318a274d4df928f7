"""From cells to figures: medians over rounds, what was added to a direct connection in the same round. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.cell import Cell
from bench.requests import BODY_BYTES
from bench.workloads import LARGE_AT_ONCE, PACED_STREAMS


@dataclass(frozen=True, slots=True)
class Figure:
    """The median over rounds, the least and the most."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Measure:
    """One column: what is read from one cell, given the direct cell of the same workload and round."""

    name: str
    title: str
    workload: str
    digits: int
    read: Callable[[Cell, Cell | None], float | None]
    once: bool = False
    """Only the first round says it: memory that a process has taken it does not give back."""


def _added(kind: str, percentile: str) -> Callable[[Cell, Cell | None], float | None]:
    def read(cell: Cell, beside: Cell | None) -> float | None:
        spread, base = getattr(cell, kind), getattr(beside, kind, None)
        if spread is None or base is None:
            return None
        return float(getattr(spread, percentile) - getattr(base, percentile))

    return read


def _per(amount: float, of: int) -> float | None:
    return amount / of if of else None


MEASURES = (
    Measure("requests_per_s", "requests/s", "requests", 0, lambda c, _: c.in_time / c.seconds),
    Measure("cpu_us_per_request", "CPU µs/request", "requests", 1, lambda c, _: _per(c.cpu_s * 1e6, c.answered)),
    Measure("added_p50_us", "added p50 µs", "latency", 0, _added("latency", "p50")),
    Measure("added_p99_us", "added p99 µs", "latency", 0, _added("latency", "p99")),
    Measure("chunks_per_s", "chunks/s", "burst", 0, lambda c, _: c.tokens / c.seconds),
    Measure("cpu_us_per_chunk", "CPU µs/chunk", "burst", 2, lambda c, _: _per(c.cpu_s * 1e6, c.all_tokens)),
    Measure("paced_ttft_p50_us", "paced +TTFT p50 µs", "paced", 0, _added("ttft", "p50")),
    Measure("paced_ttft_p99_us", "paced +TTFT p99 µs", "paced", 0, _added("ttft", "p99")),
    Measure("paced_lag_p50_us", "paced +token p50 µs", "paced", 0, _added("lag", "p50")),
    Measure("paced_tokens_per_s", "paced tokens/s", "paced", 0, lambda c, _: c.tokens / c.seconds),
    Measure("paced_cpu_us", "paced CPU µs/token", "paced", 1, lambda c, _: _per(c.cpu_s * 1e6, c.all_tokens)),
    Measure("paced_cpu_percent", "paced CPU %", "paced", 1, lambda c, _: c.cpu_share * 100),
    Measure("kb_per_stream", "KB/stream", "paced", 1, lambda c, _: c.added_kb / PACED_STREAMS, once=True),
    Measure("large_mb_per_s", "10 MB bodies MB/s", "large", 0, lambda c, _: c.bytes_sent / c.seconds / 1e6),
    Measure(
        "large_memory",
        "bodies in memory",
        "large",
        2,
        lambda c, _: c.added_kb * 1024 / BODY_BYTES / LARGE_AT_ONCE,
        True,
    ),
)

Figures = dict[str, dict[str, Figure]]
"""By contender, by measure; a figure that nobody knows is absent."""


def figures(cells: Iterable[Cell]) -> Figures:
    """Of cells without errors: refusing is quick."""
    by_place = {(c.contender, c.workload, c.round): c for c in cells if not c.errors}
    contenders = dict.fromkeys(name for name, _, _ in by_place)
    found: Figures = {}
    for contender in contenders:
        for measure in MEASURES:
            values = [
                value
                for (name, workload, round), cell in by_place.items()
                if (name, workload) == (contender, measure.workload)
                and not (measure.once and round > 0)
                and (value := measure.read(cell, by_place.get(("direct", workload, round)))) is not None
            ]
            if values:
                found.setdefault(contender, {})[measure.name] = _figure(values)
    return found


def _figure(values: Sequence[float]) -> Figure:
    return Figure(median(values), min(values), max(values))


def errors(cells: Iterable[Cell]) -> list[str]:
    """A sentence for every cell with errors."""
    return [
        f"{c.contender}, {c.workload}, round {c.round + 1}: {c.errors} of {c.errors + c.answered} requests failed; "
        f"the first: {c.fault}"
        for c in cells
        if c.errors
    ] + [f"{c.contender}, {c.workload}, round {c.round + 1}: nothing was answered" for c in cells if not c.answered]
