"""Passes and reports on rows: what is written, what is announced, what is refused."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agent.wire.shard import ShardState
from catalog.models import Model
from fleet import apply, events, keeping, models, passes, selectors
from fleet.actions import nodes, observe, replicas
from fleet.core import plan as steps
from fleet.core.reconcile import plan
from fleet.link import orders
from fleet.selectors import telling
from fleet.selectors.world import load_wanted, load_world
from llmgw.cluster import changes, leases
from llmgw.cluster.actions import audit
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.changes import announce, versions
from llmgw.cluster.errors import Conflict, Invalid, NotFound
from llmgw.cluster.models import AuditEntry, Lease
from tests.fleet.agents import FACTS
from tests.fleet.rows import LINK, back_in_time, beat, grace_is_over, joined, link_is_up, seen, serving, tiny, told

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _link(db: None) -> None:
    link_is_up()


def test_absent_facts_stay_unknown() -> None:
    joined(facts=replace(FACTS, cpu_count=None, gpus=None, engines=None))
    found = selectors.node("n1")
    assert found["cpu_count"] is None
    assert found["gpus"] is None
    assert found["engines"] is None
    assert joined("n2", facts=replace(FACTS, gpus=())).facts["gpus"] == []
    assert selectors.node("n2")["gpus"] == 0


def test_a_failed_start_backs_off_longer_each_time_and_parks_with_the_reason() -> None:
    joined()
    tiny()
    cluster_settings.put(path="fleet.park_after", value=3, actor="test")
    passes.run()
    waits = []
    for number in (1, 2, 3):
        spec = told()[0]
        assert spec.incarnation == number
        beat(seen(spec, ShardState.FAILED, reason="out of memory", last_words=("cudaMalloc failed",)))
        row = models.Replica.objects.get()
        if row.next_try_at is not None:
            waits.append((row.next_try_at - timezone.now()).total_seconds())
            models.Replica.objects.update(next_try_at=timezone.now())
            passes.run()
    assert waits == [pytest.approx(2, abs=1), pytest.approx(4, abs=1)]
    assert row.state == "parked"
    assert row.reason == "3 starts in a row failed; the last: out of memory"
    assert told() == ()
    assert selectors.replica(row.public_id)["shards"][0]["last_words"] == ["cudaMalloc failed"]
    assert selectors.model_states()["tiny"].state == "parked"
    passes.run()
    assert models.Replica.objects.get().state == "parked"

    replicas.retry(replica=row.public_id, actor="test")
    passes.run()
    row.refresh_from_db()
    assert (row.state, row.failures) == ("starting", 0)
    assert told()[0].incarnation == 4


def test_one_that_served_long_starts_counting_anew() -> None:
    joined()
    replica = serving()
    models.Replica.objects.update(failures=4)
    back_in_time(replica, 3600)
    beat(seen(told()[0], ShardState.FAILED, reason="killed"))
    replica.refresh_from_db()
    assert (replica.state, replica.failures) == ("backoff", 1)
    assert selectors.model_states()["tiny"].state == "loading"
    assert "tried again" in selectors.model_states()["tiny"].reason


def test_news_of_an_earlier_run_do_not_count() -> None:
    joined()
    replica = serving()
    old = told()[0]
    replicas.restart(replica=replica.public_id, actor="test")
    beat(seen(old, ShardState.FAILED, reason="ended as it was asked to"))
    replica.refresh_from_db()
    assert replica.state == "starting"
    beat(seen(told()[0], ShardState.READY))
    replica.refresh_from_db()
    assert replica.state == "ready"


def test_endpoints_are_announced_when_readiness_changes_and_not_otherwise() -> None:
    joined()
    serving()
    before = versions()
    beat(seen(told()[0], ShardState.READY, memory_bytes=5, progress=0.5))
    assert versions()["endpoints"] == before["endpoints"]
    beat(seen(told()[0], ShardState.LOADING))
    assert versions()["endpoints"] > before["endpoints"]
    assert selectors.endpoints() == []


def test_a_lost_node_is_given_up_and_its_endpoints_withdrawn() -> None:
    joined()
    joined("n2", facts=replace(FACTS, cpu_count=1))
    replica = serving()
    assert selectors.endpoints()[0].node == "n1"
    assert selectors.endpoints()[0].host == "10.0.0.7"
    models.Node.objects.filter(node_id="n1").update(connected=False)
    assert len(selectors.endpoints()) == 1  # the agent is away, the engine serves
    long_ago = timezone.now() - timezone.timedelta(minutes=5)
    models.Node.objects.filter(node_id="n1").update(last_seen=long_ago)
    Lease.objects.filter(name=LINK).update(taken_at=long_ago)
    assert selectors.endpoints() == []
    assert selectors.node("n1")["state"] == "lost"
    passes.run()
    replica.refresh_from_db()
    assert replica.state == "lost"
    assert [s.model for s in told("n2")] == ["tiny"]


def test_a_node_that_was_merely_silent_keeps_its_engine() -> None:
    joined()
    replica = serving()
    spec = told()[0]
    long_ago = timezone.now() - timezone.timedelta(minutes=5)
    models.Node.objects.update(last_seen=long_ago)
    Lease.objects.filter(name=LINK).update(taken_at=long_ago)
    passes.run()
    replica.refresh_from_db()
    assert replica.state == "lost"
    assert told() == (spec,)  # its agent, if it still hears us, ends nothing
    observe.beats([observe.Beat("n1", timezone.now())])
    observe.found_again(["n1"])  # it has no other news
    replica.refresh_from_db()
    assert replica.state == "ready"
    passes.run()
    assert models.Replica.objects.get().state == "ready"


def test_a_lost_replica_whose_engine_is_known_to_have_ended_is_not_ordered() -> None:
    joined()
    replica = serving()
    models.Replica.objects.update(state="lost")
    models.Shard.objects.update(observed="failed")
    assert told() == ()
    joined()
    passes.run()
    replica.refresh_from_db()
    assert replica.state == "stopping"


def test_histories_are_forgotten_when_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    joined()
    serving()
    audit.record(actor="test", action="test.old")
    year_ago = timezone.now() - timezone.timedelta(days=365)
    old = models.ReplicaEvent.objects.first()
    assert old is not None
    models.ReplicaEvent.objects.filter(pk=old.pk).update(at=year_ago)
    AuditEntry.objects.update(at=year_ago)
    kept = models.ReplicaEvent.objects.count() - 1
    monkeypatch.setattr(keeping, "EVERY_S", 0)
    passes.run()
    assert models.ReplicaEvent.objects.count() == kept > 0
    assert AuditEntry.objects.count() == 1
    cluster_settings.put(path="keep.audit_days", value=30, actor="test")
    assert keeping.tidy() == 1


def test_a_planner_gets_its_word_in_where_there_is_always_news(monkeypatch: pytest.MonkeyPatch) -> None:
    joined()
    tiny()
    serialise, quiet = events.serialise, []
    monkeypatch.setattr(events, "serialise", lambda: (serialise(), quiet.append(True)))

    def wanted() -> Any:
        if not quiet:  # whoever has news waits while the planner holds the turn
            announce("fleet")
        found = load_wanted()
        quiet.clear()
        return found

    monkeypatch.setattr(passes, "load_wanted", wanted)
    assert passes.run().steps == 1
    assert models.Replica.objects.get().state == "starting"


def test_nobody_is_lost_while_nobody_could_be_heard() -> None:
    joined()
    replica = serving()
    models.Node.objects.update(last_seen=timezone.now() - timezone.timedelta(minutes=5), connected=False)
    leases.take(LINK, "", 0)
    passes.run()
    replica.refresh_from_db()
    assert replica.state == "ready"
    assert selectors.endpoints()
    link_is_up()  # a link that has just begun: it waits for its fleet
    passes.run()
    replica.refresh_from_db()
    assert replica.state == "ready"


def test_a_plan_from_a_world_that_moved_is_refused() -> None:
    joined()
    tiny()
    held = leases.hold(apply.LEASE, "somebody", 10)
    assert held is not None
    now = time.time()
    world = load_world(now)
    decided = plan(world, load_wanted(), now)
    assert decided
    nodes.cordon(node_id="n1", actor="test")
    with pytest.raises(apply.Stale, match="moved"):
        apply.commit(decided, version=world.version, held=held, now=now)
    assert not models.Replica.objects.exists()


def test_a_planner_whose_term_is_over_is_fenced_off() -> None:
    joined()
    tiny()
    held = leases.hold(apply.LEASE, "somebody", 10)
    assert held is not None
    now = time.time()
    world = load_world(now)
    decided = plan(world, load_wanted(), now)
    leases.take(apply.LEASE, "another", 10)
    with pytest.raises(apply.Stale, match="term"):
        apply.commit(decided, version=world.version, held=held, now=now)
    assert passes.run().leader is False


def test_the_store_itself_refuses_a_second_claim_on_a_card() -> None:
    node = joined()
    replica = serving()
    models.Claim.objects.create(node=node, device=0, shard=replica.shards.get())
    run = load_world(time.time()).replicas[0].run
    source = load_world(time.time()).replicas[0].source
    assert run is not None
    assert source is not None
    step = steps.Place("tiny", "cpu", run, source, (steps.Seat("n1", 18200, (0,), 1, 0),))
    held = leases.take(apply.LEASE, "somebody", 10)
    with pytest.raises(apply.Stale):
        apply.commit(steps.Plan((step,)), version=load_world(time.time()).version, held=held, now=time.time())


def test_the_steady_state_costs_a_fixed_number_of_queries() -> None:
    for number in range(3):
        joined(f"n{number}")
    tiny(3)
    passes.run()
    lasting = timezone.now() + timezone.timedelta(minutes=5)  # a slow machine would renew it in one of the two passes
    Lease.objects.update(expires_at=lasting)
    grace_is_over()
    with CaptureQueriesContext(connection) as few:
        assert passes.run().steps == 0
    for number in range(3, 30):
        joined(f"n{number}")
    tiny(20)
    passes.run()
    assert models.Replica.objects.count() == 20
    with CaptureQueriesContext(connection) as many:
        assert passes.run().steps == 0
    assert len(many) == len(few) <= 16
    with CaptureQueriesContext(connection) as sending:
        orders.desired_states([f"n{i}" for i in range(30)], "store")
    assert len(sending) <= 9


def test_a_stored_label_wins_over_the_agents() -> None:
    joined(facts=replace(FACTS, labels={"rack": "a", "gpu": "no"}))
    assert nodes.label(node_id="n1", changes={"rack": "b", "row": "3"}, actor="test") == {"rack": "b", "row": "3"}
    assert selectors.node("n1")["labels"] == {"rack": "b", "gpu": "no", "row": "3"}
    nodes.label(node_id="n1", changes={"rack": None}, actor="test")
    assert selectors.node("n1")["labels"]["rack"] == "a"
    with pytest.raises(Invalid, match="a label is name=value"):
        nodes.label(node_id="n1", changes={"bad name": "x"}, actor="test")


def test_a_node_in_use_is_not_removed_and_a_drained_one_is() -> None:
    joined()
    replica = serving()
    with pytest.raises(Conflict, match="still runs 1 replica: drain it first"):
        nodes.remove(node_id="n1", actor="test")
    nodes.drain(node_id="n1", actor="test")
    passes.run()
    replica.refresh_from_db()
    assert replica.state == "draining"
    back_in_time(replica, 60)
    passes.run()
    beat()
    assert not models.Replica.objects.filter(pk=replica.pk).exists()
    nodes.remove(node_id="n1", actor="test")
    assert not models.Node.objects.exists()
    actions = list(AuditEntry.objects.values_list("action", flat=True))
    assert "node.remove" in actions
    assert "node.drain" in actions
    with pytest.raises(NotFound, match="there is no node n1"):
        nodes.cordon(node_id="n1", actor="test")


def test_a_restored_store_adopts_what_runs_and_overtakes_the_nodes_numbers() -> None:
    joined()
    replica = serving()
    spec = told()[0]
    running = seen(spec, ShardState.READY)
    replica.delete()
    models.Node.objects.update(generation=1)
    node = joined(shards=(running,), generation=40, store_id=str(_store()))
    assert node.generation > 40
    assert node.settled is False
    assert models.Stray.objects.get().foreign
    passes.run()
    adopted = models.Replica.objects.get()
    assert (adopted.public_id, adopted.state, adopted.adopted) == (replica.public_id, "ready", True)
    assert told()[0].fingerprint == spec.fingerprint
    assert not models.Node.objects.get().settled, "a node that it does not know may yet come: nothing is ended"
    grace_is_over()
    passes.run()
    assert models.Node.objects.get().settled
    assert not models.Stray.objects.exists()


def test_a_restored_store_starts_nothing_afresh() -> None:
    joined()
    serving()
    spec = replace(told()[0], incarnation=7, port=18777)
    before = models.Node.objects.get().generation
    joined(shards=(seen(spec, ShardState.READY),), generation=before + 30, store_id=str(_store()))
    passes.run()
    (now,) = told()
    assert (now.incarnation, now.fingerprint) == (spec.incarnation, spec.fingerprint)
    assert models.Replica.objects.get().state == "ready"


def test_what_was_adopted_is_named_as_taken_over_until_it_has_gone() -> None:
    joined()
    replica = serving()
    running = seen(told()[0], ShardState.READY)
    replica.delete()
    joined(shards=(running,), generation=4, store_id="00000000-0000-0000-0000-000000000001")
    passes.run()
    assert models.Replica.objects.get().adopted
    order = orders.desired_states(["n1"], "store")["n1"]
    assert [s.shard_id for s in order.shards] == [running.shard_id]
    assert order.taken_over == (running.shard_id,)
    models.Replica.objects.update(state="stopping")  # before the node has heard that it was adopted
    order = orders.desired_states(["n1"], "store")["n1"]
    assert (order.shards, order.taken_over) == ((), (running.shard_id,))
    beat()
    assert orders.desired_states(["n1"], "store")["n1"].taken_over == ()


def test_another_stores_engine_is_ended_by_a_person_only() -> None:
    running = seen_foreign()
    joined(shards=(running,), generation=4, store_id="00000000-0000-0000-0000-000000000001")
    Model.objects.all().delete()
    passes.run()
    assert selectors.node("n1")["state"] == "unsettled"
    order = orders.desired_states(["n1"], "store")["n1"]
    assert (order.synced, order.taken_over) == (False, ())
    assert nodes.settle(node_id="n1", actor="test") == 1
    passes.run()
    order = orders.desired_states(["n1"], "store")["n1"]
    assert (order.synced, order.taken_over) == (True, ("r-other.0",))
    assert selectors.node("n1")["state"] == "ready"
    joined(shards=(running,), generation=4, store_id="00000000-0000-0000-0000-000000000001")
    assert models.Node.objects.get().settled  # it was decided
    joined(shards=(running,), generation=order.generation + 9, store_id=str(_store()))  # the store was restored
    passes.run()
    order = orders.desired_states(["n1"], "store")["n1"]
    assert (order.synced, order.taken_over) == (False, ())  # and asks again


def test_beats_are_written_in_one_go_and_keep_what_they_do_not_say() -> None:
    joined()
    joined("n2")
    now = timezone.now()
    with CaptureQueriesContext(connection) as queries:
        observe.beats([observe.Beat("n1", now, 3, memory_free_bytes=5, load_1m=1.5), observe.Beat("n2", now)])
    assert len([q for q in queries if "SET last_seen" in q["sql"]]) == 1
    first, second = models.Node.objects.order_by("node_id")
    assert (first.memory_free_bytes, first.load_1m, first.taken_generation) == (5, 1.5, 3)
    assert second.memory_free_bytes == FACTS.memory_free_bytes


def test_explain_placement_names_every_node_and_why_not() -> None:
    joined()
    joined("n2", facts=replace(FACTS, engines=()))
    joined("n3", facts=replace(FACTS, cpu_count=2))
    nodes.cordon(node_id="n3", actor="test")
    tiny(cpu_cores=4)
    found = selectors.explain_placement("tiny")
    assert found["node"] == "n1"
    reasons = {c["node"]: [r["code"] for r in c["reasons"]] for c in found["candidates"]}
    assert reasons == {"n1": [], "n2": ["engine_missing"], "n3": ["node_cordoned", "cpu"]}
    passes.run()
    assert models.Replica.objects.get().shards.get().node.node_id == "n1"


def _store() -> Any:
    from fleet.bootstrap import store_id

    return store_id()


def seen_foreign() -> Any:
    from agent.wire.shard import ShardObserved

    return ShardObserved(
        "r-other.0", ShardState.READY, fingerprint="f", pid=1, port=18700, replica_id="r-other", model="old"
    )


def test_what_becomes_of_a_parked_one_is_told() -> None:
    joined()
    serving()
    joined("n2")
    joined("n3")
    models.Replica.objects.update(state="parked", reason="3 starts in a row failed; the last: boom", ready_at=None)
    assert {r.code for r in telling.model("tiny")} >= {"not_serving", "parked_apart"}
    passes.run()
    models.Replica.objects.update(state="parked", reason="3 starts in a row failed; the last: boom")
    nodes = sorted(models.Shard.objects.values_list("node__node_id", flat=True))
    assert len(set(nodes)) == 2
    told_of = {r.code: r for r in telling.model("tiny")}
    assert told_of["its_own_fault"].sentence.startswith(f"it failed on {nodes[0]} and {nodes[1]} and serves nowhere")
    assert passes.run().steps == 0


def test_the_news_of_many_nodes_are_told_once(
    django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever builds something of the whole fleet at each change would else do it once for each node."""
    names = [f"n{n}" for n in range(8)]
    for name in names:
        joined(name)
    tiny(minimum=8)
    passes.run()
    heard: list[str] = []
    monkeypatch.setattr(changes, "_listeners", {})
    for part in ("fleet", "endpoints"):
        changes.listen(part, lambda: heard.append("looked"))
    ready = [observe.News(name, tuple(seen(spec, ShardState.READY) for spec in told(name))) for name in names]
    before = versions()["endpoints"]
    with django_capture_on_commit_callbacks(execute=True):
        observe.heartbeats(ready)
    assert models.Replica.objects.filter(state="ready").count() == 8
    assert heard == ["looked", "looked"]
    assert versions()["endpoints"] == before + 1
