"""A start that failed for want of a card's memory: elsewhere where another holds it, and not again where it is too
small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.wire.facts import GpuFacts, HolderFacts, NodeFacts
from agent.wire.shard import CACHE_MEMORY, CARD_HELD, GPU_MEMORY, ShardState
from fleet import models, passes
from fleet.actions import replicas
from fleet.core.replica import Rank, Seen, State, observed
from llmgw.cluster.core.sections import FleetSettings
from tests.fleet import rows
from tests.fleet.agents import FACTS

GIB = 2**30
WORDS = "vllm ended with status 1 while loading: out of GPU memory: CUDA out of memory"


@pytest.mark.parametrize(
    ("state", "cause", "wanted"),
    [
        (State.STARTING, GPU_MEMORY, (State.PARKED, GPU_MEMORY)),
        (State.LOADING, CACHE_MEMORY, (State.PARKED, CACHE_MEMORY)),
        (State.READY, GPU_MEMORY, (State.BACKOFF, GPU_MEMORY)),
        (State.LOADING, CARD_HELD, (State.BACKOFF, CARD_HELD)),
        (State.LOADING, "", (State.BACKOFF, "start_failed")),
    ],
)
def test_only_a_start_that_can_end_no_other_way_is_parked_at_once(
    state: State, cause: str, wanted: tuple[State, str]
) -> None:
    failed = Rank(ShardState.FAILED, 1, WORDS, "n1", 5.0, cause)
    seen = Seen(state, 1, since=0.0)
    for ranks in ((failed,), (Rank(ShardState.LOADING, 1), failed)):
        outcome = observed(seen, ranks, FleetSettings(), 10.0)
        assert outcome is not None
        assert (outcome.state, outcome.reason_code) == wanted
        assert WORDS in outcome.reason
        assert ("less context" in outcome.reason) == (wanted[0] is State.PARKED)


def cards(*free: int, holders: tuple[HolderFacts, ...] = ()) -> NodeFacts:
    """A node of cards of 80 GiB; `holders` are on the first."""
    found = tuple(
        GpuFacts(
            n, gpu_class="h100-80g", memory_bytes=80 * GIB, memory_free_bytes=f * GIB, holders=holders if not n else ()
        )
        for n, f in enumerate(free)
    )
    return replace(FACTS, gpus=found)


def placed(facts: NodeFacts) -> models.Replica:
    rows.link_is_up()
    rows.joined(facts=facts)
    rows.tiny(gpus=1, gpu_class="h100-80g")
    passes.run()
    row = models.Replica.objects.get()
    assert row.shards.get().devices == [0]
    rows.beat(rows.seen(rows.told()[0], ShardState.STARTING))
    return row


STRANGER = (HolderFacts(4711, 60 * GIB),)


@pytest.mark.django_db
def test_it_goes_to_another_card_where_one_is_held() -> None:
    placed(cards(80, 80))
    held = cards(20, 80, holders=STRANGER)
    rows.joined(facts=held, shards=(rows.seen(rows.told()[0], ShardState.STARTING),))
    assert models.Node.objects.get().foreign == {}, "the card is ours"
    failed = rows.seen(rows.told()[0], ShardState.FAILED, reason="held by process 4711", cause=CARD_HELD)
    rows.beat(failed)
    row = models.Replica.objects.get()
    assert (row.state, row.reason_code) == ("backoff", CARD_HELD)
    assert models.Node.objects.get().foreign == {"0": 60 * GIB}
    passes.run()
    rows.beat()
    passes.run()
    again = models.Replica.objects.get()
    assert (again.state, again.shards.get().devices) == ("starting", [1])


@pytest.mark.django_db
def test_it_waits_for_the_holder_where_there_is_no_other() -> None:
    placed(cards(80))
    rows.joined(facts=cards(20, holders=STRANGER), shards=(rows.seen(rows.told()[0], ShardState.STARTING),))
    rows.beat(rows.seen(rows.told()[0], ShardState.FAILED, reason="held by process 4711", cause=CARD_HELD))
    passes.run()
    rows.beat()
    passes.run()
    waiting = models.Replica.objects.get()
    assert waiting.state == "pending"
    assert waiting.reason == "no node can take it: 1 × GPU memory held by others"
    rows.joined(facts=cards(80))
    passes.run()
    assert models.Replica.objects.get().state == "starting"


@pytest.mark.django_db
def test_one_that_is_free_again_is_tried_again() -> None:
    row = placed(cards(80))
    rows.beat(rows.seen(rows.told()[0], ShardState.FAILED, reason="held by process 4711", cause=CARD_HELD))
    models.Replica.objects.filter(pk=row.pk).update(next_try_at=row.created_at)
    passes.run()
    again = models.Replica.objects.get()
    assert (again.pk, again.state, again.incarnation) == (row.pk, "starting", 2)


@pytest.mark.django_db
def test_a_card_that_is_too_small_parks_it_until_somebody_asks() -> None:
    row = placed(cards(80))
    rows.beat(rows.seen(rows.told()[0], ShardState.FAILED, reason=WORDS, cause=GPU_MEMORY))
    passes.run()
    parked = models.Replica.objects.get()
    assert (parked.pk, parked.state, parked.reason_code, parked.failures) == (row.pk, "parked", GPU_MEMORY, 1)
    assert parked.reason.startswith(WORDS)
    assert not models.Claim.objects.exists()
    replicas.retry(replica=parked.public_id, actor="test")
    passes.run()
    assert models.Replica.objects.get().state == "starting"
