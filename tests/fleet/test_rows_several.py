"""A replica over several nodes in rows: what each rank is told, and what becomes of all when one goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.utils import timezone

from agent.wire.facts import EngineFacts, FabricFacts, GpuFacts, PortFacts, RankFacts
from agent.wire.shard import Fabric, ShardSpec, ShardState
from fleet import models, passes, selectors
from fleet.actions import nodes, replicas
from fleet.bootstrap import store_id
from fleet.selectors.world import facts_of
from llmgw.cluster.models import Lease
from tests.fleet.agents import FACTS, GIB
from tests.fleet.rows import LINK, beat, joined, link_is_up, seen, tiny, told

pytestmark = pytest.mark.django_db
PORT = PortFacts("mlx5_0", 1, "infiniband", True, 200.0, subnet_manager="sm1")


def machine(name: str, address: str) -> None:
    cards = tuple(
        GpuFacts(n, gpu_class="h100-80g", compute_capability="9.0", memory_bytes=80 * GIB, memory_free_bytes=80 * GIB)
        for n in range(2)
    )
    facts = replace(
        FACTS,
        address=address,
        gpus=cards,
        rdma_ports=(PORT,),
        fabrics=(FabricFacts("ib-a", ("mlx5_0",)),),
        engines=(EngineFacts("vllm"),),
    )
    joined(name, facts=facts)


@pytest.fixture(autouse=True)
def _cluster(db: None) -> None:
    link_is_up()
    machine("n1", "10.0.0.1")
    machine("n2", "10.0.0.2")
    tiny(gpus=2, nodes=2, gpu_class="h100-80g", engine="vllm")
    passes.run()


def serve() -> models.Replica:
    for name in ("n1", "n2"):
        beat(seen(told(name)[0], ShardState.READY), node_id=name)
    return models.Replica.objects.get()


def test_each_rank_is_told_of_all() -> None:
    one, other = told("n1")[0], told("n2")[0]
    assert (one.rank, other.rank, one.world_size, one.devices) == (0, 1, 2, (0, 1))
    assert one.gang is not None
    assert one.gang == other.gang
    assert one.gang.addresses == ("10.0.0.1", "10.0.0.2")
    assert one.gang.port == one.port + 1
    assert one.gang.fabric == Fabric("ib-a", "infiniband", ("mlx5_0:1",))
    assert models.Claim.objects.count() == 4
    row = selectors.replicas()[0]
    assert (row["nodes"], row["fabric"]) == (["n1", "n2"], "ib-a")


def test_it_serves_when_every_rank_is_ready_and_asks_the_leader() -> None:
    beat(seen(told("n1")[0], ShardState.READY), node_id="n1")
    assert models.Replica.objects.get().state == "loading"
    assert serve().state == "ready"
    assert [e.node for e in selectors.endpoints()] == ["n1"]


def test_a_port_that_changes_starts_nothing_anew() -> None:
    before = serve() and told("n1")[0].fingerprint
    joined(
        "n1", facts=replace(FACTS, address="10.9.9.9", rdma_ports=()), shards=(seen(told("n1")[0], ShardState.READY),)
    )
    assert told("n1")[0].fingerprint == before


def test_one_failed_rank_is_a_failed_replica_and_all_move_on_retry() -> None:
    serve()
    first, second = told("n1")[0], told("n2")[0]
    beat(seen(second, ShardState.FAILED, reason="NCCL gave up"), node_id="n2")
    row = models.Replica.objects.get()
    assert (row.state, row.reason) == ("backoff", "rank 1 on n2: NCCL gave up")
    models.Replica.objects.update(next_try_at=timezone.now())
    passes.run()
    again = told("n1")[0]
    assert again.incarnation == told("n2")[0].incarnation == first.incarnation + 1
    assert again.port != first.port
    assert told("n2")[0].port != second.port
    assert again.gang is not None
    assert again.gang.port not in {first.port, again.port, first.gang.port if first.gang else 0}


def test_a_lost_node_frees_the_cards_of_the_others() -> None:
    serve()
    machine("n3", "10.0.0.3")
    held = told("n1")[0]
    long_ago = timezone.now() - timezone.timedelta(seconds=300)
    models.Node.objects.filter(node_id="n2").update(connected=False, last_seen=long_ago)
    Lease.objects.filter(name=LINK).update(taken_at=long_ago)
    passes.run()
    stopped = models.Replica.objects.exclude(state="pending").get()
    assert (stopped.state, "n2 has not been heard" in stopped.reason) == ("stopping", True)
    assert told("n1") == ()
    beat(seen(held, ShardState.STOPPED), node_id="n1")
    passes.run()
    placed = models.Replica.objects.get(state="starting")
    assert [s.node.node_id for s in placed.shards.all()] == ["n1", "n3"]
    assert models.Replica.objects.filter(state="stopping").count() == 1


def test_a_rank_that_never_spoke_is_not_taken_for_ended() -> None:
    """The leader ended; whether the worker's engine has begun only its own node can say."""
    held = told("n1")[0]
    beat(seen(held, ShardState.STARTING), node_id="n1")
    nodes.drain(node_id="n1", actor="test")
    tiny(0, gpus=2, nodes=2, gpu_class="h100-80g", engine="vllm")
    passes.run()
    assert models.Replica.objects.get().state == "stopping"
    beat(node_id="n1")
    assert [s.node.node_id for s in models.Shard.objects.all()] == ["n2"]
    beat(node_id="n2")
    assert not models.Replica.objects.exists()
    assert not models.Claim.objects.exists()


def test_removing_a_node_tells_the_others() -> None:
    serve()
    before = models.Node.objects.get(node_id="n1").generation
    nodes.remove(node_id="n2", actor="test", force=True)
    assert models.Node.objects.get(node_id="n1").generation > before
    assert told("n1") == ()


def test_a_restart_is_one_of_all_ranks() -> None:
    row = serve()
    replicas.restart(replica=row.public_id, actor="test")
    assert {told(n)[0].incarnation for n in ("n1", "n2")} == {2}


def test_memory_of_other_programs_is_seen_on_cards_that_none_of_ours_has() -> None:
    def cards(free: int) -> tuple[GpuFacts, ...]:
        return tuple(
            GpuFacts(n, gpu_class="h100-80g", memory_bytes=80 * GIB, memory_free_bytes=f * GIB)
            for n, f in enumerate((free, 80))
        )

    joined("n1", facts=replace(FACTS, gpus=cards(5)), shards=())
    assert models.Node.objects.get(node_id="n1").foreign == {}
    joined("n4", facts=replace(FACTS, gpus=cards(5)))
    assert models.Node.objects.get(node_id="n4").foreign == {"0": 75 * GIB}


def lost_and_heard_again(*names: str, moved: bool = False) -> list[ShardSpec]:
    """The store has lost its rows of what runs on two nodes; of these it hears again. `moved`: at other addresses."""
    serve()
    ran = [told(name)[0] for name in ("n1", "n2")]
    models.Replica.objects.all().delete()
    models.Node.objects.update(generation=1)
    for name, spec in zip(("n1", "n2"), ran, strict=True):
        node = models.Node.objects.get(node_id=name)
        if name not in names:
            node.delete()
        else:
            shards = (seen(spec, ShardState.READY),)
            facts = replace(facts_of(node), ranks=(RankFacts(spec.shard_id, spec.devices, spec.gang),))
            if moved:
                facts = replace(facts, address=f"10.77.0.{name[1:]}")
            joined(name, facts=facts, shards=shards, generation=40, store_id=str(store_id()))
    passes.run()
    return ran


def test_ranks_that_a_lost_store_started_are_adopted_together() -> None:
    ran = lost_and_heard_again("n1", "n2")
    adopted = models.Replica.objects.get()
    assert (adopted.public_id, adopted.state, adopted.adopted) == (ran[0].replica_id, "ready", True)
    assert ran[0].gang is not None
    assert (adopted.fabric, adopted.meeting_port) == ("ib-a", ran[0].gang.port)
    assert [told(name)[0].fingerprint for name in ("n1", "n2")] == [spec.fingerprint for spec in ran]
    claims = models.Claim.objects.order_by("node__node_id", "device").values_list("node__node_id", "device")
    assert list(claims) == [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1)]
    assert not models.Stray.objects.exists()
    passes.run()
    assert models.Replica.objects.get().state == "ready"


def test_ranks_are_adopted_though_their_nodes_have_other_addresses() -> None:
    ran = lost_and_heard_again("n1", "n2", moved=True)
    assert models.Replica.objects.get().adopted
    assert [told(name)[0].fingerprint for name in ("n1", "n2")] == [spec.fingerprint for spec in ran]


def test_a_rank_without_the_other_waits_for_it() -> None:
    lost_and_heard_again("n1")
    waiting = models.Replica.objects.get()
    assert (waiting.state, waiting.reason_code, waiting.adopted) == ("pending", "rank_awaited", False)
    assert models.Stray.objects.get().foreign
