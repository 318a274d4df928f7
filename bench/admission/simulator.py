"""One model's replicas in pretended time, behind a queue in the order of arrival or behind the gateway's own `Line`.

A place works on one request at a time, at a constant number of tokens a second; answers differ in length, and the
queue reckons with the project's mean until one is over, as the edge does. Seeded: the same run each time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gateway.core.admission.fair import Entry
from gateway.core.admission.line import Line
from gateway.core.admission.room import Room

SEED = 20261129
PLACES = 8
TOKENS_A_S = 50.0
"""Of a place: so much of a prompt and its answer together."""
FIFO, FAIR = "in order of arrival", "the gateway's queue"


@dataclass(frozen=True, slots=True)
class Tenant:
    """`load`: of all places, by its mean request; `burst`: requests that it sends at the start besides."""

    name: str
    load: float
    tokens: float
    weight: float = 1.0
    band: int = 1
    burst: int = 0


@dataclass(slots=True)
class Told:
    """Of one tenant: seconds waited, and tokens done while every tenant that waits at the end was there."""

    waits: list[float] = field(default_factory=list)
    tokens: float = 0.0
    done_s: float = 0.0

    def wait(self, share: float) -> float:
        return sorted(self.waits)[min(len(self.waits) - 1, int(share * len(self.waits)))] if self.waits else 0.0


def run(tenants: Sequence[Tenant], policy: str, seconds: float) -> dict[str, Told]:
    told = {t.name: Told() for t in tenants}
    by_name = {t.name: t for t in tenants}
    arrivals = sorted(itertools.chain(*(_arrivals(t, seconds) for t in tenants)))
    events: list[tuple[float, int, str, Entry, float]] = []
    number = itertools.count()
    line, fifo, held = Line(), deque[tuple[Entry, float]](), 0
    sizes: dict[Entry, float] = {}
    end = seconds

    def start(now: float, entry: Entry, size: float) -> None:
        mine = told[entry.project]
        mine.waits.append(now - entry.since)
        heapq.heappush(events, (now + size / TOKENS_A_S, next(number), entry.project, entry, size))

    at = 0
    while at < len(arrivals) or events:
        if at < len(arrivals) and (not events or arrivals[at][0] <= events[0][0]):
            now, _, name, size = arrivals[at]
            at += 1
            tenant = by_name[name]
            entry = Entry(tenant.band, name, name, tenant.weight, round(tenant.tokens), now)
            if policy == FIFO:
                fifo.append((entry, size))
            else:
                sizes[entry] = size
                line.wait(entry)
        else:
            now, _, name, entry, size = heapq.heappop(events)
            told[name].done_s = now
            if now <= end:
                told[name].tokens += size
            if policy == FIFO:
                held -= 1
            else:
                line.over(entry, round(size))
        if policy == FIFO:
            while fifo and held < PLACES:
                held += 1
                start(now, *fifo.popleft())
        else:
            while (found := line.next(Room(PLACES, line.held))) is not None:
                start(now, found, sizes.pop(found))
    return told


def _arrivals(tenant: Tenant, seconds: float) -> Iterator[tuple[float, int, str, float]]:
    """(when, n, who, tokens): at random, of random lengths with a long tail."""
    dice = random.Random(f"{SEED} {tenant.name}")
    each_s = tenant.tokens / TOKENS_A_S / PLACES / tenant.load if tenant.load else None
    for n in range(tenant.burst):
        yield 0.0, n, tenant.name, _size(dice, tenant.tokens)
    now = 0.0
    for n in itertools.count(tenant.burst):
        if each_s is None:
            return
        now += dice.expovariate(1 / each_s)
        if now >= seconds:
            return
        yield now, n, tenant.name, _size(dice, tenant.tokens)


def _size(dice: random.Random, mean: float) -> float:
    return min(20 * mean, max(1.0, dice.lognormvariate(0.0, 1.0) * mean / 1.6487))
