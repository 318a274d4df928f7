"""A pretended week: the real planner, counts and load scaling over values, while requests come and nodes go. Pure.

Time goes in looks of some seconds; at each the demand is told as gateways would tell it, the planner plans, its plan is
carried out on values, and what must always hold is looked at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from agent.wire.shard import ShardState
from fleet.core import autoscale, reconcile, room, schedule
from fleet.core.autoscale import Spell
from fleet.core.facility import options
from fleet.core.plan import Place, Plan
from fleet.core.replica import State
from fleet.core.simulate import apply
from fleet.core.world import Demand, ReplicaView, WantedModel, World
from llmgw.rehearsal.pure.queue import Pace, Queue, Served
from llmgw.rehearsal.pure.shape import Ask
from llmgw.zones import known

LOOK_S = 10.0
_STOPS_S = 2.0
_MINUTE_S = 60.0
_STANDS = frozenset({State.READY, State.PENDING, State.PARKED})
_HOLDS = frozenset({State.STARTING, State.LOADING, State.READY, State.DRAINING, State.STOPPING, State.BACKOFF})
"""Of a replica whose cards are taken."""


@dataclass(frozen=True, slots=True)
class Happening:
    """At `at` a node is `lost`, `back` (empty), `cordoned` or `uncordoned`."""

    at: float
    what: str
    node: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the gateway matters: how long a request may wait, and how many of a model's may."""

    patience_s: float = 120.0
    queue_limit: int = 256
    look_s: float = LOOK_S


@dataclass
class Found:
    """What a week came to. `gpu_hours` by the class of cards; `starts` by model; `broken`: what must never be."""

    served: dict[str, Served] = field(default_factory=dict)
    gpu_hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    starts: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    broken: list[str] = field(default_factory=list)


PaceOf = Callable[[str, str, tuple[int, ...]], Pace]
"""Of a model under a profile on so many cards: (model, node, devices)."""


class Week:
    """One run over one stream of requests."""

    def __init__(
        self,
        world: World,
        wanted: Iterable[WantedModel],
        pace_of: PaceOf,
        rules: Rules,
        happenings: Iterable[Happening] = (),
    ) -> None:
        self._world = world
        self._wanted = tuple(wanted)
        self._pace_of = pace_of
        self._rules = rules
        self._happenings = sorted(happenings, key=lambda h: h.at)
        self._queues = {w.name: Queue(rules.patience_s, rules.queue_limit) for w in self._wanted}
        self._spells: dict[str, Spell] = {}
        self._names: Iterator[str] = (f"r-{n}" for n in count())
        self._classes = {
            (n.id, c.index): c.gpu_class or "unknown" for n in world.nodes for c in n.facts.gpus or () if c.index >= 0
        }
        self._zone = known(world.time_zone)
        self._calm = False
        """The last look had nothing to do."""
        self.found = Found()

    def run(self, asks: Iterable[Ask], begin: float, seconds: float) -> Found:
        """From `begin` (Unix seconds); `asks` in the order of time."""
        stream = iter(asks)
        ask = next(stream, None)
        now = begin
        while now < begin + seconds:
            until = now + self._rules.look_s
            while ask is not None and ask.at < until:
                queue = self._queues.get(ask.model)
                if queue is not None and ask.at >= now:
                    queue.ask(ask)
                ask = next(stream, None)
            now = until
            for one in self._queues.values():
                one.at(now)
            self._look(now)
        self.found.served = {name: q.served for name, q in self._queues.items()}
        return self.found

    def _look(self, now: float) -> None:
        while self._happenings and self._happenings[0].at <= now:
            self._happen(self._happenings.pop(0), now)
            self._calm = False
        self._pass_time(now)
        demand = {
            name: Demand(q.waiting, q.in_flight, q.waiting_since, q.last_asked) for name, q in self._queues.items()
        }
        quiet = frozenset(
            r.id for r in self._world.replicas if r.state is State.DRAINING and self._queues[r.model].idle(r.id)
        )
        targets = self._targets(demand, now)
        still = self._calm and self._world.targets == targets and not any(q.busy for q in self._queues.values())
        self._world = replace(self._world, demand=demand, quiet=quiet, targets=targets)
        # Nobody asks and nothing moves: what the clock alone decides is looked at once a minute.
        plan = Plan() if still and now % _MINUTE_S >= self._rules.look_s else self._plan(now)
        self._calm = not plan and all(r.state in _STANDS for r in self._world.replicas)
        if plan:
            before = {r.id: r.state for r in self._world.replicas}
            self._world = apply(self._world, plan, now, self._names)
            for replica in self._world.replicas:
                if replica.state is State.STARTING and before.get(replica.id) is not State.STARTING:
                    self.found.starts[replica.model] += 1
            if any(isinstance(step, Place) for step in plan.steps):
                self._look_at_power(now)
        self._serve(now)
        self._count(now)

    def _plan(self, now: float) -> Plan:
        return reconcile.plan(self._world, self._wanted, now)

    def _pass_time(self, now: float) -> None:
        """What engines do by themselves: they become ready, and end."""
        kept: list[ReplicaView] = []
        for replica in self._world.replicas:
            match replica.state:
                case State.STARTING | State.LOADING if now - replica.since >= self._pace(replica).start_s:
                    shards = tuple(replace(s, observed=ShardState.READY) for s in replica.shards)
                    kept.append(replace(replica, state=State.READY, since=now, shards=shards))
                case State.STOPPING if now - replica.since >= _STOPS_S:
                    continue
                case _:
                    kept.append(replica)
        self._world = replace(self._world, replicas=tuple(kept))

    def _serve(self, now: float) -> None:
        """Queues know what serves now."""
        ready: dict[str, set[str]] = defaultdict(set)
        for replica in self._world.replicas:
            if replica.state is State.READY and replica.run is not None:
                ready[replica.model].add(replica.id)
                self._queues[replica.model].begin(replica.id, max(1, replica.run.parallel), self._pace(replica), now)
        states = {r.id: r.state for r in self._world.replicas}
        for model, queue in self._queues.items():
            for gone in queue.replicas - ready[model]:
                queue.end(gone, now, lost=states.get(gone) is not State.DRAINING)

    def _targets(self, demand: Mapping[str, Demand], now: float) -> dict[str, int]:
        found = {}
        for wanted in self._wanted:
            held = schedule.bounds(wanted.definition.scaling, now, self._zone)
            if held.min >= held.max:
                continue
            mine = [r for r in self._world.replicas if r.model == wanted.name]
            load = autoscale.load(mine, demand[wanted.name])
            spell, _ = autoscale.step(
                self._spells.get(wanted.name), load, max(1, held.min), held.max, self._world.settings, now, wanted.name
            )
            self._spells[wanted.name] = spell
            found[wanted.name] = spell.target
        return found

    def _happen(self, one: Happening, now: float) -> None:
        nodes = {n.id: n for n in self._world.nodes}
        node = nodes[one.node]
        match one.what:
            case "lost":
                node = replace(node, lost=True, connected=False, reported=False)
                for replica in self._world.replicas:
                    if any(s.node == one.node for s in replica.shards):
                        self._queues[replica.model].end(replica.id, now, lost=True)
            case "back":
                node = replace(node, lost=False, connected=True, reported=True)
                emptied = tuple(
                    replace(r, shards=tuple(replace(s, observed=None) if s.node == one.node else s for s in r.shards))
                    for r in self._world.replicas
                )
                self._world = replace(self._world, replicas=emptied)
            case "cordoned" | "uncordoned":
                node = replace(node, cordoned=one.what == "cordoned")
            case _:
                raise ValueError(f"nothing is called {one.what}")
        nodes[one.node] = node
        self._world = replace(self._world, nodes=tuple(nodes.values()))

    def _count(self, now: float) -> None:
        """GPU hours, and what must hold at every look."""
        self.found.looks += 1
        holders: dict[tuple[str, int], str] = {}
        hours = self._rules.look_s / 3600
        lost = {n.id for n in self._world.nodes if n.lost}
        for replica in self._world.replicas:
            if replica.state not in _HOLDS:
                continue
            for shard in replica.shards:
                for device in shard.devices:
                    other = holders.setdefault((shard.node, device), replica.id)
                    if other != replica.id:
                        self._break(now, f"{shard.node}/{device} is held by {other} and {replica.id}")
                    if (shard.node, device) not in self._classes:
                        self._break(now, f"{replica.id} holds card {device} of {shard.node}, which has none")
                    if shard.node not in lost:
                        self.found.gpu_hours[self._classes.get((shard.node, device), "unknown")] += hours

    def _look_at_power(self, now: float) -> None:
        """What a look placed stays below every cap."""
        caps = self._world.facility
        ledger = next((r.ledger for r in room.of(self._world).values() if r.ledger is not None), None)
        for place, watts in ledger.watts.items() if ledger is not None else ():
            cap = options(caps, place).power_cap_w
            if cap is not None and watts > cap:
                self._break(now, f"{place[0]} {place[1]} may come to {watts:.0f} W, above its cap of {cap:.0f} W")

    def _break(self, now: float, what: str) -> None:
        if len(self.found.broken) < 20:
            self.found.broken.append(f"{now:.0f}: {what}")

    def _pace(self, replica: ReplicaView) -> Pace:
        shard = replica.shards[0]
        return self._pace_of(replica.model, shard.node, shard.devices)
