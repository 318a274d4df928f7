"""What holds of every plan, whatever the fleet and the wishes are."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.wire.facts import EngineFacts, GpuFacts, NodeFacts, PortFacts
from agent.wire.shard import Profile, ShardState, Source
from catalog.core.definition import Definition, ProfileDefinition, Scaling
from fleet.core import fabrics, placement, room
from fleet.core.explain import explain
from fleet.core.fabrics import ETHERNET_LABEL
from fleet.core.plan import STOPS, Place, Want
from fleet.core.reconcile import plan
from fleet.core.replica import State
from fleet.core.simulate import apply
from fleet.core.world import Demand, NodeView, ReplicaView, ShardView, StrayView, WantedModel, World
from llmgw.cluster.core.sections import ServingSettings

NOW = 1_000_000.0
GIB = 1024**3
NODES = ("n1", "n2", "n3", "n4")
MODELS = ("alpha", "beta", "gamma")


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeView:
    engines = draw(
        st.sampled_from([None, (), (EngineFacts("llamacpp"),), (EngineFacts("llamacpp"), EngineFacts("vllm"))])
    )
    kinds = st.sampled_from(["l40s-45g", "l40s-45g", "h100-80g"])
    gpus = tuple(
        GpuFacts(i, gpu_class=draw(kinds), memory_bytes=45 * GIB, compute_capability="9.0")
        for i in range(draw(st.integers(0, 3)))
    )
    manager, lan = (
        draw(st.sampled_from([None, "sm1", "sm1", "sm2"])),
        draw(st.sampled_from([{}, {ETHERNET_LABEL: "lan"}])),
    )
    port = PortFacts("mlx5_0", 1, "infiniband", draw(st.sampled_from([True, True, False])), subnet_manager=manager)
    facts = NodeFacts(
        cpu_count=draw(st.sampled_from([None, 2, 8])),
        memory_bytes=draw(st.sampled_from([None, 8 * GIB, 32 * GIB])),
        engines=engines,
        gpus=draw(st.sampled_from([None, gpus])),
        vector_extensions=("avx", "avx2"),
        arch="x86_64",
        os="Linux",
        address=draw(st.sampled_from(["10.0.0.1", "10.0.0.1", None])),
        rdma_ports=(port,) if manager else (),
    )
    draining = draw(st.booleans()) and draw(st.booleans())
    return NodeView(
        name,
        facts,
        labels={**draw(st.sampled_from([{}, {"rack": "a"}])), **lan},
        cordoned=draining or (draw(st.booleans()) and draw(st.booleans())),
        draining=draining,
        connected=draw(st.sampled_from([True, True, True, False])),
        reported=draw(st.sampled_from([True, True, True, False])),
        lost=draw(st.sampled_from([False, False, False, True])),
        settled=draw(st.booleans()),
    )


@st.composite
def definitions(draw: st.DrawFn, name: str) -> Definition:
    profiles = tuple(
        ProfileDefinition(
            run=Profile(
                f"p{i}",
                draw(st.sampled_from(["llamacpp", "vllm"])),
                cpu_cores=draw(st.sampled_from([None, 1, 4])),
                memory_bytes=draw(st.sampled_from([None, GIB, 6 * GIB])),
                gpus=draw(st.sampled_from([0, 0, 1, 2])),
                nodes=draw(st.sampled_from([1, 1, 2, 3])),
                gpu_min_memory_bytes=draw(st.sampled_from([None, None, 24 * GIB])),
            ),
            priority=draw(st.integers(0, 2)),
            labels=draw(st.sampled_from([{}, {}, {"rack": "a"}])),
        )
        for i in range(draw(st.integers(1, 2)))
    )
    return Definition(name, "starter:tiny", profiles, scaling=Scaling(draw(st.integers(0, 3)), 3))


@st.composite
def replicas(draw: st.DrawFn, number: int, taken: set[tuple[str, int]]) -> ReplicaView:
    model = draw(st.sampled_from((*MODELS, "forgotten")))
    state = draw(st.sampled_from(list(State)))
    run = Profile(draw(st.sampled_from(["p0", "p1"])), "llamacpp", memory_bytes=GIB)
    shards: tuple[ShardView, ...] = ()
    if state is not State.PENDING and draw(st.integers(0, 9)):
        node = draw(st.sampled_from(NODES))
        port = 18100 + number
        taken.add((node, port))
        observed = draw(st.sampled_from([None, ShardState.READY, ShardState.FAILED]))
        shards = (ShardView(0, node, port, (), 1, GIB, observed=observed),)
    return ReplicaView(
        f"r-{number}",
        model,
        state,
        since=NOW - draw(st.sampled_from([1, 100])),
        profile=run.name,
        run=None if state is State.PENDING else run,
        source=None if state is State.PENDING else Source("starter:tiny"),
        shards=shards,
        next_try_at=draw(st.sampled_from([None, NOW - 1, NOW + 50])),
        created=NOW - number,
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[World, tuple[WantedModel, ...]]:
    names = NODES[: draw(st.integers(0, 4))]
    taken: set[tuple[str, int]] = set()
    rows = tuple(draw(replicas(i, taken)) for i in range(draw(st.integers(0, 8))))
    rows = tuple(replace(r, shards=tuple(s for s in r.shards if s.node in names)) for r in rows)
    strays = tuple(
        StrayView(n, f"r-stray{n}.0", f"r-stray{n}", "alpha", ShardState.READY, 18900, "x", foreign=draw(st.booleans()))
        for n in names
        if draw(st.integers(0, 3)) == 0
    )
    world = World(tuple(draw(nodes(n)) for n in names), rows, strays, synced=draw(st.sampled_from([True, True, False])))
    wanted = tuple(
        WantedModel(
            draw(definitions(m)),
            stopped=draw(st.sampled_from([False, False, True])),
            restarted_at=draw(st.sampled_from([None, None, NOW - 3.5, NOW])),
            in_place=draw(st.booleans()),
        )
        for m in MODELS[: draw(st.integers(0, 3))]
    )
    asked = st.builds(Demand, waiting=st.integers(0, 2), last_asked=st.sampled_from([None, NOW - 5, NOW - 5000]))
    world = replace(
        world,
        demand=draw(st.dictionaries(st.sampled_from(MODELS), asked)),
        targets=draw(st.dictionaries(st.sampled_from(MODELS), st.integers(0, 4))),
        serving=ServingSettings(stopped=not draw(st.integers(0, 9))),
    )
    return world, wanted


# Few examples: the suite runs on two busy cores. `HYPOTHESIS_EXAMPLES=5000` looks harder.
THOROUGH = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
Situation = tuple[World, tuple[WantedModel, ...]]


@THOROUGH
@given(situations())
def test_a_plan_that_was_carried_out_leaves_an_empty_one(situation: Situation) -> None:
    world, wanted = situation
    first = plan(world, wanted, NOW)
    after = plan(apply(world, first, NOW), wanted, NOW)
    assert after.steps == (), first


@THOROUGH
@given(situations())
def test_the_same_input_gives_the_same_plan(situation: Situation) -> None:
    world, wanted = situation
    assert plan(world, wanted, NOW) == plan(world, tuple(reversed(wanted)), NOW)


@THOROUGH
@given(situations())
def test_no_port_and_no_card_is_given_twice(situation: Situation) -> None:
    world, wanted = situation
    after = apply(world, plan(world, wanted, NOW), NOW)
    shards = [s for r in after.replicas for s in r.shards]
    ports = Counter((s.node, s.port) for s in shards)
    cards = Counter((s.node, d) for s in shards for d in s.devices)
    assert not [p for p, count in (ports + cards).items() if count > 1]


@THOROUGH
@given(situations())
def test_nothing_is_stopped_before_the_fleet_has_spoken(situation: Situation) -> None:
    world, wanted = situation
    steps = plan(replace(world, synced=False), wanted, NOW).steps
    assert not [s for s in steps if isinstance(s, (*STOPS, Place, Want))]


@THOROUGH
@given(situations())
def test_what_cannot_be_placed_has_a_reason_for_every_node(situation: Situation) -> None:
    world, wanted = situation
    rooms = room.of(world)
    for model in wanted:
        told = explain(world, model)
        assert {c.node for c in told.candidates} == {n.id for n in world.nodes}
        if told.chosen is None:
            assert all(c.rejections and all(r.sentence for r in c.rejections) for c in told.candidates)
            assert told.sentence
        assert placement.fits(model, rooms, world.settings) == (told.chosen is not None)


@THOROUGH
@given(situations())
def test_nothing_new_goes_where_nothing_may_go(situation: Situation) -> None:
    world, wanted = situation
    by_id = {n.id: n for n in world.nodes}
    for step in plan(world, wanted, NOW).steps:
        if isinstance(step, Place):
            for node in (by_id[seat.node] for seat in step.seats):
                assert node.connected
                assert node.reported
                assert not node.cordoned
                assert not node.lost


@THOROUGH
@given(situations())
def test_a_replica_over_several_nodes_is_on_one_fabric_with_cards_of_one_class(situation: Situation) -> None:
    world, wanted = situation
    by_id, islands = {n.id: n for n in world.nodes}, {i.name: i for i in fabrics.of(world.nodes).islands}
    for step in plan(world, wanted, NOW).steps:
        if not isinstance(step, Place):
            continue
        assert len({s.node for s in step.seats}) == len(step.seats) == step.run.nodes
        assert all(len(s.devices) == step.run.gpus for s in step.seats)
        classes = {c.gpu_class for s in step.seats for c in by_id[s.node].facts.gpus or () if c.index in s.devices}
        assert len(classes) <= 1
        if step.run.nodes > 1:
            assert {s.node for s in step.seats} <= set(islands[step.fabric].members)
            assert {s.link.name for s in step.seats if s.link} == {step.fabric}
            assert step.meeting_port not in {step.leader.port, None}
