"""Replicas of several ranks: one that dies ends them all, and all begin anew together."""

from __future__ import annotations

import time

import msgspec
import pytest
from django.utils import timezone

from agent.wire.shard import Profile, ShardObserved, ShardState, Source
from fleet import models, passes
from fleet.core.replica import Rank, Seen, State, observed
from llmgw.cluster.core.sections import FleetSettings
from tests.fleet import rows

pytestmark = pytest.mark.django_db
S = ShardState
SETTINGS = FleetSettings()


def of(*ranks: Rank, state: State = State.READY, incarnation: int = 1) -> tuple[State, str] | None:
    outcome = observed(Seen(state, incarnation, since=0.0), ranks, SETTINGS, 10_000.0)
    return None if outcome is None else (outcome.state, outcome.reason)


def rank(state: S | None, incarnation: int | None = 1, reason: str = "", node: str = "n2") -> Rank:
    return Rank(state, incarnation, reason, node)


def test_the_worst_rank_decides() -> None:
    ready, gone = rank(S.READY, node="n1"), rank(None)
    never = rank(None, None)
    assert of(ready, rank(S.READY), state=State.LOADING) == (State.READY, "")
    assert of(ready, never, state=State.STARTING) == (State.LOADING, ""), "a rank that was never heard of is awaited"
    assert of(ready, rank(S.LOADING)) == (State.LOADING, "")
    assert of(ready, gone) == (State.BACKOFF, "rank 1 on n2 is no longer there")
    assert of(gone, state=State.READY) is None, "one by itself begins anew by itself"
    failed = rank(S.FAILED, reason="CUDA out of memory")
    assert of(ready, failed) == (State.BACKOFF, "rank 1 on n2: CUDA out of memory")
    assert of(ready, failed, state=State.DRAINING) == (State.STOPPING, "rank 1 on n2: CUDA out of memory")
    assert of(ready, failed, state=State.STARTING, incarnation=2) is None, "an earlier run's"
    for left in (ready, rank(S.STOPPING), rank(S.STOPPED), gone):
        assert of(left, failed, state=State.BACKOFF) is None, "all of it is ended before it is tried again"


def test_the_rank_that_died_first_is_blamed_whoever_is_heard_first() -> None:
    missed = Rank(S.FAILED, 1, "RuntimeError: rank 1 left", "n1", 100.4)
    cause = Rank(S.FAILED, 1, "CUDA out of memory", "n2", 100.1)
    words = "rank 1 on n2: CUDA out of memory"
    assert of(missed, cause) == (State.BACKOFF, words)
    seen = Seen(State.BACKOFF, 1, 2, reason="rank 0 on n1: RuntimeError: rank 1 left", next_try_at=130.0)
    corrected = observed(seen, (missed, cause), SETTINGS, 101.0)
    assert corrected is not None
    assert (corrected.state, corrected.reason, corrected.failures, corrected.next_try_at) == (
        State.BACKOFF, words, 2, 130.0
    )  # fmt: skip
    cleared = Rank(None, 1, missed.reason, "n1", missed.since)
    assert observed(seen, (cleared, cause), SETTINGS, 101.0) == corrected, (
        "also when the first is not reported any more"
    )
    later = Rank(S.FAILED, 1, "killed", "n2", 100.9)
    assert observed(seen, (missed, later), SETTINGS, 101.0) is None


def placed() -> models.Replica:
    """A replica on n1 and n2 that serves, as rows."""
    rows.link_is_up()
    rows.tiny(1, nodes=2)
    nodes = [rows.joined(name) for name in ("n1", "n2")]
    profile = Profile("cpu", "llamacpp", cpu_cores=1, nodes=2)
    replica = models.Replica.objects.create(
        model="tiny",
        profile="cpu",
        spec={"profile": msgspec.to_builtins(profile), "source": msgspec.to_builtins(Source("starter:tiny"))},
        state=State.STARTING,
        state_since=timezone.now(),
        meeting_port=18900,
    )
    for number, node in enumerate(nodes):
        models.Shard.objects.create(replica=replica, rank=number, node=node, port=9100)
    return replica


def tell(node: str, *shards: ShardObserved) -> None:
    rows.beat(*shards, node_id=node)


def test_one_rank_dead_ends_the_others_and_all_begin_anew() -> None:
    replica = placed()
    one, two = (rows.told(n)[0] for n in ("n1", "n2"))
    assert (one.rank, two.rank, one.world_size, two.world_size) == (0, 1, 2, 2)
    for node, spec in (("n1", one), ("n2", two)):
        tell(node, rows.seen(spec, S.READY))
    replica.refresh_from_db()
    assert replica.state == State.READY
    lines = models.ReplicaEvent.objects.filter(replica=replica.public_id, state="rank").order_by("id")
    assert list(lines.values_list("node", "reason")) == [("n1", "rank 0: ready"), ("n2", "rank 1: ready")]
    before = models.Node.objects.get(node_id="n1").generation
    died = time.time()
    tell("n2", rows.seen(two, S.FAILED, reason="it was ended by SIGKILL", since=died))
    replica.refresh_from_db()
    assert (replica.state, replica.reason) == (State.BACKOFF, "rank 1 on n2: it was ended by SIGKILL")
    last = lines.last()
    assert last is not None
    assert (last.node, last.reason) == ("n2", "rank 1: failed: it was ended by SIGKILL")
    assert models.Node.objects.get(node_id="n1").generation > before, "its node hears of it"
    assert rows.told("n1") == rows.told("n2") == (), "neither the dead rank nor the other is wanted"
    tell("n1", rows.seen(one, S.FAILED, reason="RuntimeError: rank 1 left", since=died + 1))
    replica.refresh_from_db()
    assert replica.reason == "rank 1 on n2: it was ended by SIGKILL"
    tell("n1", rows.seen(one, S.STOPPING))
    tell("n1")
    tell("n2")
    replica.refresh_from_db()
    assert replica.state == State.BACKOFF, "that the others end is no news"

    models.Replica.objects.filter(pk=replica.pk).update(next_try_at=timezone.now())
    passes.run()
    again = [rows.told(n)[0] for n in ("n1", "n2")]
    assert [s.incarnation for s in again] == [2, 2]
    for node, spec in zip(("n1", "n2"), again, strict=True):
        tell(node, rows.seen(spec, S.READY))
    replica.refresh_from_db()
    assert (replica.state, replica.incarnation) == (State.READY, 2)


def test_a_rank_whose_machine_was_restarted_is_a_dead_one() -> None:
    replica = placed()
    one, two = (rows.told(n)[0] for n in ("n1", "n2"))
    tell("n1", rows.seen(one, S.READY))
    tell("n2", rows.seen(two, S.READY))
    tell("n1")
    replica.refresh_from_db()
    assert (replica.state, replica.reason) == (State.BACKOFF, "rank 0 on n1 is no longer there")
