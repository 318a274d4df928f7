"""What holds of every eviction, whatever the fleet and whoever asks."""

from __future__ import annotations

import os
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.core.plan import Drain, Place, Stop
from fleet.core.reconcile import plan
from fleet.core.replica import State
from fleet.core.simulate import apply
from fleet.core.swap import EVICTED
from fleet.core.world import Demand, World
from llmgw.cluster.core.sections import FleetSettings
from tests.fleet.test_reconcile_properties import MODELS, NOW, Situation, situations

EXAMPLES = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
AGO = st.sampled_from([None, 0.0, 5.0, 60.0, 5000.0])


@st.composite
def demands(draw: st.DrawFn) -> dict[str, Demand]:
    found = {}
    for model in MODELS:
        waiting, in_flight = draw(st.sampled_from([0, 0, 1, 5])), draw(st.sampled_from([0, 0, 2]))
        since, asked = draw(AGO), draw(AGO)
        found[model] = Demand(
            waiting,
            in_flight,
            NOW - (since or 0.0) if waiting or since is not None else None,
            NOW - asked if asked is not None else None,
        )
    return found


def crowded(situation: Situation, asked: dict[str, Demand], heard: bool) -> World:
    world, _ = situation
    limits = FleetSettings(swap_min_residence_s=30)
    return replace(world, demand=asked, heard=heard, settings=limits)


@EXAMPLES
@given(situations(), demands(), st.booleans())
def test_only_idle_ones_on_demand_that_were_loaded_long_ago_are_evicted(
    situation: Situation, asked: dict[str, Demand], heard: bool
) -> None:
    world, wanted = crowded(situation, asked, heard), situation[1]
    rows = {r.id: r for r in world.replicas}
    scaling = {w.name: w.definition.scaling for w in wanted}
    gone = [s for s in plan(world, wanted, NOW).steps if isinstance(s, Drain | Stop) and s.reason.code == EVICTED]
    fresh = [s for s in gone if rows[s.replica].state not in (State.DRAINING, State.STOPPING)]
    assert len(fresh) <= 1, "one at a time"
    for step in fresh:
        victim = rows[step.replica]
        assert heard
        assert scaling[victim.model].min == 0 < scaling[victim.model].max, "what is kept loaded is a promise"
        assert len(victim.shards) == 1
        assert victim.state in (State.READY, State.BACKOFF)
        if victim.state is State.READY:
            assert NOW - victim.since >= 30, "never one that has just started"
        used = asked[victim.model]
        if used.in_flight or used.waiting:
            waited = [
                NOW - d.waiting_since for m, d in asked.items() if m != victim.model and d.waiting_since is not None
            ]
            assert max(waited, default=0.0) >= world.settings.swap_max_wait_s, "in use, and nobody has waited long"


@EXAMPLES
@given(situations(), demands(), st.booleans())
def test_nothing_is_both_placed_and_ended(situation: Situation, asked: dict[str, Demand], heard: bool) -> None:
    world, wanted = crowded(situation, asked, heard), situation[1]
    steps = plan(world, wanted, NOW).steps
    placed = {s.replica for s in steps if isinstance(s, Place) and s.replica}
    ended = [s.replica for s in steps if isinstance(s, Drain | Stop)]
    assert not placed & set(ended)
    assert len(ended) == len(set(ended))
    apply(world, plan(world, wanted, NOW), NOW)
