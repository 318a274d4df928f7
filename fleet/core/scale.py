"""How many replicas a model wants now, and why: what people set, the clock, those who ask, and the load. Pure.

The reconciler asks this for every model in every pass. What the load asks for (`load`) is worked out beside it, by
`fleet.core.autoscale`, and is only ever a wish between the bounds that hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo

from agent.wire.reason import Reason
from fleet.core import fabrics, schedule
from fleet.core.adoption import adopt, by_replica
from fleet.core.demand import wants
from fleet.core.replica import State
from fleet.core.schedule import Bounds
from fleet.core.world import Demand, WantedModel, World
from llmgw.cluster.core.sections import ServingSettings
from llmgw.zones import known

SYSTEM_STOPPED = "system_stopped"
EXPECTED = "expected"
"""Nobody asks yet: it is loaded where there is room, and nothing goes for it."""
_RUNS = frozenset({State.STARTING, State.LOADING, State.READY, State.BACKOFF, State.PARKED})


@dataclass(frozen=True, slots=True)
class Count:
    """`replicas` are wanted now, for `reason`. `on_demand`: it loads when somebody asks, and may be stopped for
    another; `most`: beyond which the load cannot drive it."""

    replicas: int
    reason: Reason
    on_demand: bool = False
    most: int = 0


def counts(world: World, wanted: tuple[WantedModel, ...], now: float) -> dict[str, Count]:
    """Of every model, by name."""
    zone = known(world.time_zone)
    by_name = {w.name: w for w in wanted}
    nodes = {n.id: n for n in world.nodes} if world.strays else {}
    running = {r.model for r in world.replicas if r.state in _RUNS and r.shards} | {
        ranks[0].model  # they will be a replica's; any others are about to be ended
        for ranks in by_replica(world.strays).values()
        if ranks[0].model in by_name and adopt(ranks, by_name[ranks[0].model], nodes, lambda: fabrics.of(world.nodes))
    }
    return {
        w.name: count(
            w,
            world.demand.get(w.name, Demand()),
            now,
            world.serving,
            zone=zone,
            load=world.targets.get(w.name),
            running=w.name in running,
            heard=world.heard,
            expected=w.name in world.expected,
        )
        for w in wanted
    }


def count(
    wanted: WantedModel,
    demand: Demand,
    now: float,
    serving: ServingSettings,
    *,
    zone: tzinfo = UTC,
    load: int | None = None,
    running: bool = True,
    heard: bool = True,
    expected: bool = False,
) -> Count:
    """`load`: as many as the load asks for, where it was measured. `running`: some replica of it is placed; `heard`,
    `expected`: see `World`."""
    name, scaling = wanted.name, wanted.definition.scaling
    if serving.stopped:
        note = f": {serving.note}" if serving.note else ""
        return Count(0, Reason(SYSTEM_STOPPED, f"the system is stopped{note}", "llmgw start"))
    if wanted.stopped:
        return Count(0, Reason("model_stopped", f"the model {name} was stopped", f"llmgw model start {name}"))
    held = schedule.bounds(scaling, now, zone)
    on_demand = held.min == 0 < held.max
    least, reason = held.min, _bounds_reason(name, held, scaling.idle_timeout_s)
    if on_demand and (why := wants(demand, scaling.idle_timeout_s, now, running=running, heard=heard)):
        least, reason = 1, Reason("on_demand", f"{name} is loaded on demand: {why}", f"llmgw scale {name}")
    elif on_demand and expected and scaling.prewarm_weekly:
        sentence = f"{name} is loaded ahead: it was asked for at this hour in most of the weeks before"
        least, reason = 1, Reason(EXPECTED, sentence, f"llmgw scale {name}")
    if load is not None and least < min(load, held.max) and least > 0:
        least = min(load, held.max)
        reason = Reason("load", f"the load of {name} asks for {least} replicas", f"llmgw why {name}")
    return Count(least, reason, on_demand, held.max)


def _bounds_reason(name: str, held: Bounds, idle_timeout_s: float) -> Reason:
    command = f"llmgw scale {name}"
    many = f"{held.min} replica{'' if held.min == 1 else 's'} of {name}"
    match held:
        case Bounds(window=None, min=0, max=0):
            return Reason("none_wanted", f"no replica of {name} is wanted", f"{command} --min 1")
        case Bounds(window=None, min=0):
            return Reason("not_asked", f"nobody has asked for {name} in {idle_timeout_s:.0f} s", command)
        case Bounds(window=None):
            return Reason("wanted", f"{many} {'is' if held.min == 1 else 'are'} wanted", command)
        case Bounds(opens_at=None):
            return Reason("schedule", f"its schedule wants {many} now", command)
        case _:
            return Reason("prewarm", f"its schedule will want {many} soon", command)
