"""What this site's own runs have shown: the memory that one takes, how long it starts, and how sure that is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median_high

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
    parallel: int

    @property
    def anywhere(self) -> Key:
        """Whatever its cards."""
        return replace(self, gpu_class="")


@dataclass(frozen=True, slots=True)
class Known:
    """What such runs have taken at most. Bytes of 0: not measured."""

    memory_bytes: int = 0
    """Of a rank, on its node."""
    card_bytes: int = 0
    """On the fullest of a rank's cards …"""
    runs: int = 0
    """… in so many runs."""
    start_s: float | None = None
    """What the last few starts took, once the weights were there …"""
    fetch_s: float | None = None
    """… and what bringing them did."""


Shown = Mapping[Key, Mapping[str, Known]]
"""By the kind of run, whatever its cards (`Key.anywhere`), and then by their class."""
KEPT = 5
"""Seconds that are kept one by one: what starts take changes with disks, networks and engines."""


@dataclass(frozen=True, slots=True)
class Takes:
    """What a rank takes of each of its cards, as far as runs here have shown it."""

    card_bytes: int = 0
    """At most, on any class; 0: nobody knows, or it takes a share of whatever card it gets."""
    runs: int = 0
    on: frozenset[str] = frozenset()
    """Classes on which it has run, and so can."""
    ran_out_bytes: int = 0
    """The size of the largest card on which nothing else was and whose memory was not enough; 0: there is none."""

    def fits(self, gpu_class: str, memory_bytes: int | None) -> bool:
        """A card that does not say how large it is may be large enough."""
        if memory_bytes is None:
            return True
        if memory_bytes <= self.ran_out_bytes:
            return False
        return gpu_class in self.on or memory_bytes >= self.card_bytes


def takes(shown: Mapping[str, Known], *, fills_cards: bool, stated: bool, ran_out_bytes: int = 0) -> Takes | None:
    """`shown`: by class; `stated`: its profile says how large a card must be, and is believed. None: nothing is known
    that would choose between two cards."""
    figures = {k: f for k, f in shown.items() if k and f.card_bytes}
    if fills_cards or stated or not figures:
        return Takes(ran_out_bytes=ran_out_bytes) if ran_out_bytes else None
    most, runs = max(f.card_bytes for f in figures.values()), sum(f.runs for f in figures.values())
    return Takes(most, runs, frozenset(figures), ran_out_bytes)


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
    return Key(
        source, run.engine, gpu_class if run.gpus else "", run.gpus, run.nodes, run.context_length or 0, run.parallel
    )


def usual_s(recent: Sequence[float]) -> float | None:
    """What to expect of the next one: the middle of the last few, the longer of two. None: nobody knows."""
    return median_high(recent) if recent else None


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
