"""Replicas that exist on paper, under the gateway's own router: the same core code as the edge's, and a clock. Pure.

A replica reads prompts one after another at its pace, but for what its cache holds, and answers as many requests at a
time as it has places. Its cache is bounded and forgets the least recently used, or is kept as llama.cpp keeps its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from agent.wire.reason import Reason
from bench.routing.slots import Slots, prompt
from gateway.core import prefix, router
from gateway.core.load import Gauges, Load, Ticket, Turn
from gateway.core.prefix import Prefixes, Text
from gateway.core.sessions import seed
from gateway.core.snapshot import Endpoint

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What a replica can do. `bytes_per_s`: of prompts that it does not know; `cache_blocks`: of `prefix.read`;
    `similarity`: of llama.cpp's slots, which then are its cache."""

    parallel: int = 4
    bytes_per_s: float = 20_000.0
    token_s: float = 0.02
    cache_blocks: int = 2_000
    weight: float = 1.0
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    at: float
    body: bytes
    answer_tokens: int = 20
    session: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """How one job went. `replica` None: nobody could take it."""

    job: Job
    replica: int | None
    code: str
    ttft_s: float = 0.0
    size: int = 0
    cached: int = 0


class Simulated:
    """One replica: what really happens there, beside the `load` that the router believes."""

    def __init__(self, number: int, machine: Machine) -> None:
        self.machine = machine
        self.load = Load(Endpoint(f"r-{number}", "m", "h", 1, "n", parallel=machine.parallel, weight=machine.weight))
        self.cache = Prefixes(machine.cache_blocks)
        self.slots = None if machine.similarity is None else Slots(machine.parallel, machine.similarity)
        self.running = 0
        self.queue: deque[_Run] = deque()
        self.reads_until = 0.0
        self.down = False
        self.says = True
        """Whether it tells its load."""
        self.kv_usage: float | None = None

    def read(self, run: _Run) -> None:
        """What of the text it knows; from here on it knows all of it."""
        if self.slots is None:
            run.cached = self.cache.match(run.text, [1])[0]
            self.cache.add(run.text, 1)
            return
        text = prompt(run.job.body)
        run.slot, known = self.slots.take(text)
        run.cached = run.text.size * known // len(text)


@dataclass(slots=True)
class _Run:
    job: Job
    text: Text
    ticket: Ticket
    at: Simulated
    code: str
    cached: int = 0
    first: float = 0.0
    slot: int = 0


@dataclass
class World:
    """`run` plays jobs through; `at` are things that happen meanwhile, `watch` is called after every event."""

    machines: Sequence[Machine]
    policy: str = router.PREDICTED
    at: Sequence[tuple[float, Callable[[World], None]]] = ()
    watch: Callable[[World], None] | None = None
    now: float = 0.0
    replicas: list[Simulated] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree = Prefixes()
        self.replicas = [Simulated(i, machine) for i, machine in enumerate(self.machines)]
        turn = Turn()
        for replica in self.replicas:
            replica.load.bit = self.tree.bit(replica.load.name)
            replica.load.turn = turn
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def run(self, jobs: Sequence[Job]) -> list[Row]:
        for job in jobs:
            self._later(job.at, partial(self._arrive, job))
        for when, does in self.at:
            self._later(when, partial(does, self))
        last = max(job.at for job in jobs)
        for second in range(int(last / POLL_S) + 1):
            self._later(second * POLL_S + 0.5, self._poll)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
            if self.watch is not None:
                self.watch(self)
        return self.rows

    def _later(self, when: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def _arrive(self, job: Job) -> None:
        text = prefix.read(job.body, "m")
        session = seed(job.session) if job.session else None
        tried: set[str] = set()
        for _ in range(3):
            ask = router.Ask(self.now, tried, text, session, self.policy)
            choice = router.choose([x.load for x in self.replicas], ask, self.tree)
            if isinstance(choice, Reason):
                self.rows.append(Row(job, None, choice.code))
                return
            replica = next(x for x in self.replicas if x.load is choice.load)
            self.tree.add(text, choice.load.bit)
            ticket = choice.load.begin(self.now, text.size, choice.matched)
            if not replica.down:
                replica.queue.append(_Run(job, text, ticket, replica, choice.reason.code))
                self._start(replica)
                return
            ticket.failed(self.now, at_once=True)
            ticket.end()
            tried.add(choice.load.name)
        self.rows.append(Row(job, None, "failed"))

    def _start(self, replica: Simulated) -> None:
        while replica.queue and replica.running < replica.machine.parallel:
            run = replica.queue.popleft()
            replica.running += 1
            replica.read(run)
            unread = run.text.size - run.cached
            replica.reads_until = max(self.now, replica.reads_until) + unread / replica.machine.bytes_per_s
            run.first = replica.reads_until
            self._later(run.first, partial(self._first, run))
            self._later(run.first + run.job.answer_tokens * replica.machine.token_s, partial(self._end, run))

    def _first(self, run: _Run) -> None:
        run.ticket.first(self.now)

    def _end(self, run: _Run) -> None:
        tokens = run.text.size // 4
        run.ticket.served(self.now, tokens, run.cached // 4)
        run.ticket.end()
        run.at.running -= 1
        if run.at.slots is not None:
            run.at.slots.give_back(run.slot, self.now)
        number = self.replicas.index(run.at)
        self.rows.append(Row(run.job, number, run.code, run.first - run.job.at, run.text.size, run.cached))
        self._start(run.at)

    def _poll(self) -> None:
        for replica in self.replicas:
            said = replica.says and not replica.down
            replica.load.told(Gauges(replica.running, len(replica.queue), replica.kv_usage) if said else Gauges())


def cached_share(rows: Sequence[Row]) -> float:
    return sum(row.cached for row in rows) / max(1, sum(row.size for row in rows))


def mean_ttft(rows: Sequence[Row]) -> float:
    return sum(row.ttft_s for row in rows) / len(rows)
