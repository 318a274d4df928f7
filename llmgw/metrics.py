"""How a process's figures (llmgw.series) reach the exporter. Needs no Django.

A process counts in a `Figures`, and pushes all of it (cumulative) to Redis once a second under a key of its own;
the exporter sums what it finds.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable

import msgspec

from llmgw.series import BY_NAME, LONGEST, OLDEST, PASSING, Metric

log = logging.getLogger(__name__)
PREFIX = "llmgw:metrics:"
DEAD = f"{PREFIX}dead"
"""The counters of processes that are gone, summed."""
FLEET = f"{PREFIX}fleet"
"""What is true of the whole cluster, written by whichever worker looked last."""
PUSH_S = 1.0
GAP_S = 10.0
"""A process that could not push for longer begins a new key: its old one may have been counted as dead."""
FLEET_STALE_S = 15.0

Labels = tuple[str, ...]


class State(msgspec.Struct):
    """What one process pushes. Series are [name, labels, value]; a histogram's value is [sum, bucket counts…]."""

    component: str
    at: float
    counters: list[tuple[str, list[str], float]] = msgspec.field(default_factory=list)
    gauges: list[tuple[str, list[str], float]] = msgspec.field(default_factory=list)
    histograms: list[tuple[str, list[str], list[float]]] = msgspec.field(default_factory=list)


_decoder = msgspec.json.Decoder(State)


def decode(data: bytes) -> State:
    """Raises `msgspec.MsgspecError`."""
    return _decoder.decode(data)


def encode(state: State) -> bytes:
    return msgspec.json.encode(state)


class Figures:
    """One process's figures. Not locked: each is touched by one thread, and a push may miss the last step."""

    def __init__(self) -> None:
        self.counters: dict[tuple[str, Labels], float] = {}
        self.gauges: dict[tuple[str, Labels], float] = {}
        self.histograms: dict[tuple[str, Labels], list[float]] = {}

    def add(self, metric: Metric, labels: Labels = (), amount: float = 1.0) -> None:
        key = (metric.name, labels)
        self.counters[key] = self.counters.get(key, 0.0) + amount

    def put(self, metric: Metric, value: float | None, labels: Labels = ()) -> None:
        """None: not known, so absent."""
        if value is None:
            self.gauges.pop((metric.name, labels), None)
        else:
            self.gauges[(metric.name, labels)] = value

    def clear(self, metric: Metric) -> None:
        """Forget all series of a gauge, before those that are true now are put."""
        for key in [k for k in self.gauges if k[0] == metric.name]:
            del self.gauges[key]

    def keep(self, replicas: Container[str]) -> None:
        """Forget what was counted under the label `replica` of any other."""
        for name, labels in [k for k in self.counters if k[0] in PASSING]:
            if labels[BY_NAME[name].labels.index("replica")] not in replicas:
                del self.counters[name, labels]

    def series(self, metric: Metric, labels: Labels = ()) -> list[float]:
        """A histogram's [sum, bucket counts…], to be added to by whoever observes too often for `observe`."""
        key = (metric.name, labels)
        series = self.histograms.get(key)
        if series is None:
            series = self.histograms[key] = [0.0] * (len(metric.buckets) + 2)
        return series

    def observe(self, metric: Metric, value: float, labels: Labels = ()) -> None:
        series = self.series(metric, labels)
        series[0] += value
        series[1 + bisect_left(metric.buckets, value)] += 1

    def observe_all(self, metric: Metric, values: Iterable[float], labels: Labels = ()) -> None:
        ordered = sorted(values)
        if not ordered:
            return
        series = self.series(metric, labels)
        series[0] += sum(ordered)
        counted = 0
        for i, bound in enumerate(metric.buckets):
            within = bisect_right(ordered, bound, counted)
            series[1 + i] += within - counted
            counted = within
        series[-1] += len(ordered) - counted

    def state(self, component: str, at: float) -> State:
        return State(
            component,
            at,
            [(name, list(labels), value) for (name, labels), value in list(self.counters.items())],
            [(name, list(labels), value) for (name, labels), value in list(self.gauges.items())],
            [(name, list(labels), list(value)) for (name, labels), value in list(self.histograms.items())],
        )

    def forget_pushed(self, pushed: State) -> None:
        """Subtract what a lost key already held, for a fresh one."""
        for name, labels, value in pushed.counters:
            if (key := (name, tuple(labels))) in self.counters:
                self.counters[key] -= value
        for name, labels, values in pushed.histograms:
            series = self.histograms[(name, tuple(labels))]
            for i, value in enumerate(values):
                series[i] -= value


class Pusher:
    """Which key a process pushes under, and what. `pushed()` must be told of each success."""

    def __init__(self, component: str, figures: Figures, now: Callable[[], float] = time.monotonic) -> None:
        self.component, self.figures = component, figures
        self._now = now
        self._began = f"{component}-{os.getpid()}-{int(time.time() * 1000):x}"
        self._epoch = 0
        self._last: tuple[float, State] | None = None

    def next(self) -> tuple[str, bytes, State]:
        if self._last is not None and self._now() - self._last[0] > GAP_S:
            self.figures.forget_pushed(self._last[1])
            self._epoch += 1
            self._last = None
        state = self.figures.state(self.component, time.time())
        suffix = f"-{self._epoch}" if self._epoch else ""
        return f"{PREFIX}{self._began}{suffix}", encode(state), state

    def pushed(self, state: State) -> None:
        self._last = (self._now(), state)


def push_from_thread(component: str, redis_url: str, figures: Figures | None = None) -> threading.Thread:
    """For a process without a loop of its own at hand (web, worker, link): a daemon thread that pushes each
    second, so that it counts as up."""
    import redis  # the edge and the exporter bring their own client

    client = redis.Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=2)
    pusher = Pusher(component, figures if figures is not None else PROCESS)

    def run() -> None:
        while True:
            key, data, state = pusher.next()
            try:
                client.set(key, data)
                pusher.pushed(state)
            except (redis.RedisError, OSError):
                pass  # the exporter sees it: the figures are absent until Redis is back
            time.sleep(PUSH_S)

    thread = threading.Thread(target=run, name="llmgw-metrics", daemon=True)
    thread.start()
    return thread


PROCESS = Figures()
"""This process's figures, for code that has no other at hand (Celery tasks)."""


def merge(states: Iterable[State]) -> State:
    """Counters and histograms summed, gauges by their kind."""
    counters: dict[tuple[str, Labels], float] = {}
    gauges: dict[tuple[str, Labels], float] = {}
    histograms: dict[tuple[str, Labels], list[float]] = {}
    for state in states:
        for name, labels, value in state.counters:
            key = (name, tuple(labels))
            counters[key] = counters.get(key, 0.0) + value
        for name, labels, value in state.gauges:
            key = (name, tuple(labels))
            before = gauges.get(key)
            gauges[key] = value if before is None else _joined(name, before, value)
        for name, labels, values in state.histograms:
            key = (name, tuple(labels))
            series = histograms.get(key)
            if series is None or len(series) != len(values):
                histograms[key] = list(values)
            else:
                histograms[key] = [a + b for a, b in zip(series, values, strict=True)]
    figures = Figures()
    figures.counters, figures.gauges, figures.histograms = counters, gauges, histograms
    return figures.state("merged", 0.0)


def _joined(name: str, a: float, b: float) -> float:
    if name in OLDEST:
        return min(a, b)
    return max(a, b) if name in LONGEST else a + b
