"""Models that take turns on one card, in pretended time: orders of requests are played through the planner itself.

    python -m bench.turns        the table of docs/on-demand.md

Gateways, node and engine are pretended: requests wait in line for their model, a start takes as long as it is said to,
answers take as long as they are said to, and an engine that is ended is gone a second later. What is decided, and when,
is `fleet.core.reconcile` with its real settings.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.shard import Profile
from catalog.core.definition import Definition, ProfileDefinition, Scaling
from fleet.core import plan as steps
from fleet.core.reconcile import plan
from fleet.core.replica import State
from fleet.core.world import Demand, NodeView, ReplicaView, ShardView, WantedModel, World
from llmgw.cluster.core.sections import FleetSettings

Arrival = tuple[float, str]
"""Seconds, model."""
TICK_S = 1.0
GONE_S = 1.0
MOST_S = 100_000.0


@dataclass(slots=True)
class Played:
    """What came of it. `loads`: models in the order in which they were loaded; `waits`: of each request, until an
    engine had it."""

    loads: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def longest_s(self) -> float:
        return max(self.waits, default=0.0)

    @property
    def mean_s(self) -> float:
        return sum(self.waits) / len(self.waits) if self.waits else 0.0


def play(
    arrivals: Sequence[Arrival],
    *,
    load_s: float = 20.0,
    answer_s: float = 3.0,
    resident: str = "",
    settings: FleetSettings | None = None,
) -> Played:
    """Through the planner. `resident`: the model that has held the card for a long time, unused."""
    return _Card(arrivals, load_s, answer_s, resident, settings or FleetSettings()).run()


def one_after_the_other(
    arrivals: Sequence[Arrival], *, load_s: float = 20.0, answer_s: float = 3.0, resident: str = ""
) -> Played:
    """As a proxy does that knows one queue: each request in its turn, and the model that it wants is loaded for it."""
    played, free, holds = Played(), 0.0, resident
    for at, model in sorted(arrivals, key=lambda a: a[0]):
        begins = max(at, free)
        if model != holds:
            begins, holds = begins + GONE_S + load_s, model
            played.loads.append(model)
        played.waits.append(begins - at)
        free = begins + answer_s
    return played


def fewest(arrivals: Iterable[Arrival], resident: str = "") -> int:
    """Loads of a planner that knows what comes, and may let everybody wait as long as it likes: one for each model."""
    return len({model for _, model in arrivals} - {resident})


class _Card:
    def __init__(
        self, arrivals: Sequence[Arrival], load_s: float, answer_s: float, resident: str, settings: FleetSettings
    ) -> None:
        self.load_s, self.answer_s = load_s, answer_s
        self.names = (f"r-{n}" for n in itertools.count(1))
        self.now = 10_000.0
        self.arrivals = sorted((self.now + at, model) for at, model in arrivals)
        models = sorted({model for _, model in arrivals} | ({resident} if resident else set()))
        run = Profile("cpu", "llamacpp", cpu_cores=1)
        self.wanted = [
            WantedModel(Definition(m, "starter:tiny", (ProfileDefinition(run),), scaling=Scaling(0, 1))) for m in models
        ]
        facts = NodeFacts(cpu_count=1, engines=(EngineFacts("llamacpp"),), vector_extensions=("avx2",), gpus=())
        self.world = World((NodeView("n1", facts),), settings=settings, starts=dict.fromkeys(models, load_s))
        if resident:
            shard = ShardView(0, "n1", 18100, (), 1)
            source = self.wanted[0].source(self.wanted[0].profiles[0])
            here = ReplicaView("r-0", resident, State.READY, 0.0, "cpu", run, source, (shard,))
            self.world = replace(self.world, replicas=(here,))
        self.waiting: dict[str, list[float]] = defaultdict(list)
        self.busy: dict[str, list[float]] = defaultdict(list)
        """When each request that is being answered ends."""
        self.asked: dict[str, float] = {resident: self.now - 600} if resident else {}
        self.played = Played()

    def run(self) -> Played:
        coming = list(self.arrivals)
        while coming or any(self.waiting.values()) or any(self.busy.values()):
            assert self.now < MOST_S, "somebody starves"
            while coming and coming[0][0] <= self.now:
                at, model = coming.pop(0)
                self.waiting[model].append(at)
                self.asked[model] = self.now
            self._engines()
            self._demand()
            self._plan()
            self.now += TICK_S
        return self.played

    def _engines(self) -> None:
        rows = []
        for row in self.world.replicas:
            if row.state is State.STARTING and self.now - row.since >= self.load_s:
                row = replace(row, state=State.READY, since=self.now)
            if row.state is State.READY:
                for at in self.waiting.pop(row.model, []):
                    self.played.waits.append(self.now - at)
                    self.busy[row.model].append(self.now + self.answer_s)
            if row.state is not State.STOPPING or self.now - row.since < GONE_S:
                rows.append(row)
        self.busy = defaultdict(list, {m: [e for e in ends if e > self.now] for m, ends in self.busy.items()})
        self.world = replace(self.world, replicas=tuple(rows))

    def _demand(self) -> None:
        found = {}
        for model in {*self.waiting, *self.busy, *self.asked}:
            waits, in_flight = self.waiting[model], len(self.busy[model])
            if in_flight:
                self.asked[model] = self.now
            found[model] = Demand(len(waits), in_flight, min(waits, default=None), self.asked.get(model))
        quiet = frozenset(r.id for r in self.world.replicas if r.state is State.DRAINING and not self.busy[r.model])
        self.world = replace(self.world, demand=found, quiet=quiet)

    def _plan(self) -> None:
        rows = {r.id: r for r in self.world.replicas}
        for step in plan(self.world, self.wanted, self.now).steps:
            match step:
                case steps.Place():
                    name = step.replica or next(self.names)
                    seat = step.leader
                    shard = ShardView(0, seat.node, seat.port, (), seat.cpu_cores)
                    rows[name] = ReplicaView(
                        name, step.model, State.STARTING, self.now, step.profile, step.run, step.source, (shard,)
                    )
                    self.played.loads.append(step.model)
                case steps.Want():
                    name = next(self.names)
                    rows[name] = ReplicaView(name, step.model, State.PENDING, self.now)
                case steps.Drain() | steps.Stop():
                    state = State.DRAINING if isinstance(step, steps.Drain) else State.STOPPING
                    code = step.reason.code
                    rows[step.replica] = replace(rows[step.replica], state=state, since=self.now, reason_code=code)
                case steps.Forget():
                    del rows[step.replica]
                case steps.Hold():
                    held, reason = rows[step.replica], step.reason
                    rows[step.replica] = replace(
                        held,
                        reason_code=reason.code,
                        reason=reason.sentence,
                        held_by=step.held_by,
                        free_at=step.free_at,
                    )
        self.world = replace(self.world, replicas=tuple(rows.values()))


def order(letters: str, gap_s: float) -> list[Arrival]:
    """`ABAAC`, one every `gap_s`."""
    return [(n * gap_s, letter) for n, letter in enumerate(letters)]


def _shuffled(models: str, count: int, gap_s: float, seed: int) -> list[Arrival]:
    dice = random.Random(seed)
    at, found = 0.0, []
    for _ in range(count):
        found.append((at, dice.choice(models)))
        at += dice.expovariate(1 / gap_s)
    return found


CASES: tuple[tuple[str, list[Arrival]], ...] = (
    ("A B A A C, at once", order("ABAAC", 0.5)),
    ("A B A A C, one every 10 s", order("ABAAC", 10)),
    ("A B A A C, one a minute", order("ABAAC", 60)),
    ("A B A B A B A B, one every 2 s", order("AB" * 4, 2)),
    ("A B C A B C A B C A B C, one every 3 s", order("ABC" * 4, 3)),
    ("200 requests for 2 models, one every 5 s", _shuffled("AB", 200, 5, 1)),
    ("200 requests for 4 models, one every 5 s", _shuffled("ABCD", 200, 5, 2)),
    ("200 requests for 4 models, one every 30 s", _shuffled("ABCD", 200, 30, 3)),
    ("A without end, one every 2 s; B now and then", sorted(order("A" * 300, 2) + order("B" * 4, 150))),
)


def main() -> None:
    print("| requests | loads | fewest | longest wait | mean | one after the other: loads | longest wait | mean |")
    print("|---|---|---|---|---|---|---|---|")
    for name, arrivals in CASES:
        ours, theirs = play(arrivals), one_after_the_other(arrivals)
        print(
            f"| {name} | {len(ours.loads)} | {fewest(arrivals)} | {ours.longest_s:.0f} s | {ours.mean_s:.0f} s"
            f" | {len(theirs.loads)} | {theirs.longest_s:.0f} s | {theirs.mean_s:.0f} s |"
        )


if __name__ == "__main__":
    main()
