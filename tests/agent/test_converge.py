"""What a node does next: by example, and for whatever may come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.converge import Action, Forget, Held, Own, Start, Stop, Taken, accepts, step, take
from agent.wire.messages import Desired
from agent.wire.shard import Profile, ShardSpec, ShardState, Source

S = ShardState
LIVING = [S.FETCHING, S.STARTING, S.LOADING, S.READY, S.STOPPING]


def spec(shard_id: str = "a", *, incarnation: int = 1, port: int = 1, model: str = "m") -> ShardSpec:
    return ShardSpec(
        shard_id, shard_id, model, Profile("p", "llamacpp"), Source("starter:tiny"), port, "k", incarnation=incarnation
    )


def held(of: ShardSpec, state: ShardState = S.READY, store: str = "s") -> Held:
    return Held(of.shard_id, store, of.incarnation, of.fingerprint, of.port, state)


def desired(*specs: ShardSpec, store: str = "s", synced: bool = True, taken_over: tuple[str, ...] = ()) -> Desired:
    return Desired(store, 1, 1, specs, synced, taken_over)


def kinds(actions: tuple[Action, ...]) -> list[tuple[str, str]]:
    return [(type(a).__name__, a.spec.shard_id if isinstance(a, Start) else a.shard_id) for a in actions]


def test_a_failure_is_forgotten_when_it_was_told() -> None:
    failed = Held("r-1.0", "s", 1, "f", 9000, ShardState.FAILED, told=False)
    assert step(Desired("s", 1, 1), (failed,)) == ()
    assert step(Desired("s", 1, 1), (replace(failed, told=True),)) == (Forget("r-1.0"),)


def test_nothing_is_done_before_an_order_came() -> None:
    assert step(None, (held(spec()),)) == ()


def test_what_is_wanted_and_not_there_is_started() -> None:
    assert step(desired(spec()), ()) == (Start(spec(), "s"),)


@pytest.mark.parametrize("state", LIVING)
def test_what_is_wanted_and_there_is_left_alone(state: ShardState) -> None:
    assert step(desired(spec()), (held(spec(), state),)) == ()


def test_what_is_not_wanted_is_stopped_and_then_forgotten() -> None:
    assert kinds(step(desired(), (held(spec()),))) == [("Stop", "a")]
    assert step(desired(), (held(spec(), S.STOPPING),)) == ()
    assert kinds(step(desired(), (held(spec(), S.STOPPED),))) == [("Forget", "a")]
    assert kinds(step(desired(), (held(spec(), S.FAILED),))) == [("Forget", "a")]


@pytest.mark.parametrize("other", [spec(incarnation=2), spec(model="n")])
def test_another_incarnation_or_spec_is_a_restart(other: ShardSpec) -> None:
    assert kinds(step(desired(other), (held(spec()),))) == [("Stop", "a")]
    assert step(desired(other), (held(spec(), S.STOPPING),)) == ()
    assert kinds(step(desired(other), (held(spec(), S.STOPPED),))) == [("Start", "a")]


def test_a_failure_waits_for_a_new_incarnation() -> None:
    assert step(desired(spec()), (held(spec(), S.FAILED),)) == ()
    assert kinds(step(desired(spec(incarnation=2)), (held(spec(), S.FAILED),))) == [("Start", "a")]


def test_what_was_stopped_and_is_wanted_again_is_started() -> None:
    assert kinds(step(desired(spec()), (held(spec(), S.STOPPED),))) == [("Start", "a")]


def test_a_store_that_did_not_start_it_stops_nothing() -> None:
    for wanted in ((), (spec(incarnation=2),)):
        assert step(desired(*wanted, store="restored"), (held(spec()),)) == ()
    assert kinds(step(desired(spec("b", port=2), store="new"), (held(spec()),))) == [("Start", "b")]


@pytest.mark.parametrize("synced", [True, False])
def test_a_store_owns_what_runs_as_its_order_names_it(synced: bool) -> None:
    order = desired(spec(), store="new", synced=synced)
    assert step(order, (held(spec()),)) == (Own("a", "new"),)
    assert step(order, (held(spec(), store="new"),)) == ()
    assert step(order, (held(spec(), S.FAILED),)) == ()
    assert kinds(step(desired(store="new"), (held(spec(), store="new"),))) == [("Stop", "a")]
    assert step(desired(), (held(spec(), store="new"),)) == ()


@pytest.mark.parametrize("wanted", [(), (spec(incarnation=2),)])
def test_what_a_store_took_over_it_may_end(wanted: tuple[ShardSpec, ...]) -> None:
    order = desired(*wanted, store="new", taken_over=("a",))
    assert kinds(step(order, (held(spec()), held(spec("b"))))) == [("Stop", "a")]
    assert step(replace(order, synced=False), (held(spec()),)) == ()
    assert step(order, (held(spec(), S.STOPPING),)) == ()


def test_nothing_is_stopped_before_the_control_plane_has_heard_its_fleet() -> None:
    assert step(desired(synced=False), (held(spec()), held(spec("b"), S.FAILED))) == ()
    assert kinds(step(desired(spec("b"), synced=False), (held(spec()),))) == [("Start", "b")]


def test_a_port_is_waited_for_when_its_holder_goes() -> None:
    b = spec("b", port=1)
    assert kinds(step(desired(b), (held(spec()),))) == [("Stop", "a")]
    assert step(desired(b), (held(spec(), S.STOPPING),)) == ()
    assert kinds(step(desired(b), (held(spec(), S.STOPPED),))) == [("Forget", "a"), ("Start", "b")]


def test_a_shard_that_is_named_twice_is_started_once() -> None:
    assert kinds(step(desired(spec(), spec(port=2)), ())) == [("Start", "a")]


def test_older_orders_are_not_taken() -> None:
    taken = (Taken("s", 2, 5), Taken("t", 9, 9))
    assert accepts((), Desired("s", 0, 0))
    assert accepts(taken, Desired("s", 2, 5))
    assert accepts(taken, Desired("s", 3, 1))
    assert not accepts(taken, Desired("s", 2, 4))
    assert not accepts(taken, Desired("s", 1, 9))
    assert accepts(taken, Desired("another", 0, 0))
    later = take(taken, Desired("another", 0, 0))
    assert later[-1] == Taken("another", 0, 0)
    assert not accepts(later, Desired("s", 1, 9))
    assert take(later, Desired("s", 3, 1)) == (Taken("t", 9, 9), Taken("another", 0, 0), Taken("s", 3, 1))
    for i in range(100):
        later = take(later, Desired(f"s{i}", 1, 1))
    assert len(later) == 8


_specs = st.builds(
    spec, st.sampled_from("abcd"), incarnation=st.integers(1, 2), port=st.integers(1, 3), model=st.sampled_from("mn")
)
_held = st.builds(held, _specs, st.sampled_from(list(S)), st.sampled_from(["s", "t"]))


def _unique(items: list[Held]) -> tuple[Held, ...]:
    return tuple({h.shard_id: h for h in items}.values())


_world = st.lists(_held, max_size=4).map(_unique)
_desired = st.builds(
    lambda specs, store, synced, over: Desired(
        store, 1, 1, tuple({s.shard_id: s for s in specs}.values()), synced, over
    ),
    st.lists(_specs, max_size=4),
    st.sampled_from(["s", "t", "u"]),
    st.booleans(),
    st.sampled_from([(), (), ("a",), ("b", "d")]),
)


@given(_desired, _world)
def test_only_what_may_be_stopped_is(order: Desired, world: tuple[Held, ...]) -> None:
    by_id = {h.shard_id: h for h in world}
    actions = step(order, world)
    for action in actions:
        match action:
            case Stop(shard_id, sentence):
                assert order.synced
                assert order.store_id == by_id[shard_id].store_id or shard_id in order.taken_over
                assert by_id[shard_id].lives
                assert sentence
            case Start(wanted, store_id):
                assert wanted in order.shards
                assert store_id == order.store_id
                assert wanted.shard_id not in by_id or not by_id[wanted.shard_id].lives
            case Own(shard_id, store_id):
                assert by_id[shard_id].lives
                assert store_id == order.store_id != by_id[shard_id].store_id
            case Forget(shard_id):
                assert not by_id[shard_id].lives
    touched = [a.spec.shard_id if isinstance(a, Start) else a.shard_id for a in actions]
    assert len(touched) == len(set(touched))


def _apply(world: tuple[Held, ...], actions: tuple[Action, ...]) -> tuple[Held, ...]:
    found = {h.shard_id: h for h in world}
    for action in actions:
        match action:
            case Start(wanted, store_id):
                found[wanted.shard_id] = held(wanted, S.READY, store_id)
            case Own(shard_id, store_id):
                found[shard_id] = replace(found[shard_id], store_id=store_id)
            case Stop(shard_id, _):
                found[shard_id] = replace(found[shard_id], state=S.STOPPED)
            case Forget(shard_id):
                del found[shard_id]
    return tuple(found.values())


@given(_desired, _world)
def test_it_comes_to_rest_where_it_was_told_to(order: Desired, world: tuple[Held, ...]) -> None:
    world = tuple(replace(h, state=S.STOPPED) if h.state is S.STOPPING else h for h in world)
    for _ in range(6):
        actions = step(order, world)
        if not actions:
            break
        world = _apply(world, actions)
    assert step(order, world) == ()
    if order.synced:
        mine = {h.shard_id for h in world if h.store_id == order.store_id}
        failed = {h.shard_id for h in world if h.state is S.FAILED}
        wanted = {s.shard_id for s in order.shards}
        others = {h.shard_id for h in world if h.store_id != order.store_id and h.lives}
        assert mine <= wanted
        assert wanted <= mine | failed | others
