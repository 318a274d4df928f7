"""What an explanation says of cores that nobody named."""

from __future__ import annotations

from dataclasses import replace

from agent.wire.shard import Profile, Source
from catalog.core.definition import Definition, ProfileDefinition
from fleet.core.explain import explain
from fleet.core.replica import State
from fleet.core.world import NodeView, ReplicaView, ShardView, WantedModel, World
from tests.fleet.agents import FACTS


def test_shared_cores_are_told() -> None:
    run = Profile("cpu", "llamacpp")
    wanted = WantedModel(Definition("m", "starter:tiny", profiles=(ProfileDefinition(run),)))
    others = tuple(
        ReplicaView(f"r-{n}", "o", State.READY, 0.0, "cpu", run, Source("path:/o"), (ShardView(0, "n1", 18100 + n),))
        for n in range(2)
    )
    world = World((NodeView("n1", replace(FACTS, cpu_count=8)),), others)
    assert explain(world, wanted).sentence == (
        "one more replica of m would go to n1 with profile cpu, where it shares 8 cores with 2 other engines: "
        "profiles that name cpu_cores do not"
    )
    alone = explain(replace(world, replicas=()), wanted).sentence
    assert alone == "one more replica of m would go to n1 with profile cpu"
    named = ProfileDefinition(replace(run, cpu_cores=2))
    wanted = WantedModel(replace(wanted.definition, profiles=(named,)))
    assert "shares" not in explain(world, wanted).sentence
