"""What this site's own runs have shown: the memory that one takes, how long it starts, and how sure that is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from agent.wire.reason import Reason
from agent.wire.shard import Profile
from fleet.core.sizes import gib

_SLACK = 1.02
"""Memory within two hundredths of what was reserved is no news."""


@dataclass(frozen=True, slots=True)
class Key:
    """Runs that are alike. `gpu_class` empty: on the CPU; `context_length` 0: the engine's own."""

    weights: str
    engine: str
    gpu_class: str
    gpus: int
    nodes: int
    context_length: int


@dataclass(frozen=True, slots=True)
class Figure:
    """Of `n` runs; `spread` is the sum of squared differences from the mean (Welford)."""

    n: int = 0
    mean: float = 0.0
    spread: float = 0.0
    least: float = 0.0
    most: float = 0.0
    last: float = 0.0

    def added(self, value: float) -> Figure:
        n = self.n + 1
        mean = self.mean + (value - self.mean) / n
        spread = self.spread + (value - self.mean) * (value - mean)
        first = self.n == 0
        return Figure(n, mean, spread, value if first else min(self.least, value), max(self.most, value), value)

    @property
    def deviation(self) -> float | None:
        """None of one run: nobody knows."""
        return sqrt(self.spread / (self.n - 1)) if self.n > 1 else None


def key(run: Profile, source: str, gpu_class: str) -> Key:
    return Key(source, run.engine, gpu_class if run.gpus else "", run.gpus, run.nodes, run.context_length or 0)


def told_s(figure: Figure) -> str:
    """`38.2 s (12 runs, ± 3.1 s)`."""
    return _told(figure, lambda v: f"{v:.1f} s")


def told_bytes(figure: Figure) -> str:
    return _told(figure, lambda v: gib(int(v)))


def short(reserved: int, figure: Figure) -> bool:
    """Whether runs have taken more than is reserved for one."""
    return figure.n > 0 and figure.most > reserved * _SLACK


def warning(reserved: int, measured: int | None, figure: Figure | None) -> Reason | None:
    """Less is reserved than it takes: what is placed beside it may find the memory gone."""
    taken = max(measured or 0, int(figure.most) if figure is not None else 0)
    if taken <= reserved * _SLACK:
        return None
    had = f"{gib(reserved)} are reserved for it" if reserved else "nothing is reserved for it"
    since = f" ({figure.n} runs here took up to {gib(int(figure.most))})" if figure is not None and figure.n > 1 else ""
    return Reason("reserved_too_little", f"it takes {gib(taken)} of memory, and {had}{since}: raise min_memory_gb")


def _told(figure: Figure, shown: Callable[[float], str]) -> str:
    runs = f"{figure.n} run{'' if figure.n == 1 else 's'}"
    about = f", ± {shown(figure.deviation)}" if figure.deviation is not None else ""
    return f"{shown(figure.mean)} ({runs}{about})"
