"""Every card with what works on it: pure, and by command and API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command
from rest_framework.test import APIClient

from agent.wire.facts import GpuFacts, NodeFacts
from fleet.core import devices
from fleet.core.replica import State
from fleet.core.world import NodeView, ReplicaView, ShardView
from fleet.models import Node, Replica, Shard
from tests.fleet.rows import link_is_up

GIB = 2**30


def card(index: int, **said: Any) -> GpuFacts:
    return GpuFacts(index, gpu_class="h100-80g", memory_bytes=80 * GIB, memory_free_bytes=60 * GIB, **said)


def node(name: str = "n1", *cards: GpuFacts, **said: Any) -> NodeView:
    return NodeView(name, NodeFacts(gpus=cards or (card(0), card(1))), **said)


def seen(*nodes: NodeView, replicas: tuple[ReplicaView, ...] = (), heard: bool = True) -> tuple[devices.Device, ...]:
    return devices.of(nodes, replicas, lambda _node, gpu: gpu, heard=heard)


def on(model: str, *cards: int, state: State = State.READY) -> ReplicaView:
    return ReplicaView(f"r-{model}", model, state, 0.0, shards=(ShardView(0, "n1", 18000, cards),))


def test_a_parked_replica_has_no_card() -> None:
    found = seen(node(), replicas=(on("a", 0), on("b", 1, state=State.PARKED)))
    assert [d.state for d in found] == ["used", "free"]


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (node(), ""),
        (node(cordoned=True), "cordoned"),
        (node(cordoned=True, draining=True), "draining"),
        (node(connected=False), "away"),
        (node(connected=False, lost=True), "lost"),
        (node(settled=False), "unsettled"),
        (node("n1", card(0, problem="it fell off the bus")), "problem"),
        (node(foreign={0: 9 * GIB}), "foreign"),
    ],
)
def test_why_nothing_can_be_placed_on_a_card(view: NodeView, why: str) -> None:
    assert seen(view)[0].unusable == why


def test_without_a_link_nobody_knows() -> None:
    assert seen(node(), heard=False)[0].unusable == "unknown"


@pytest.mark.parametrize(
    ("said", "busy", "by"),
    [
        ({"sm_active_percent": 41.0, "power_w": 350.0, "power_limit_w": 700.0}, 41.0, "sm"),
        ({"sm_active_percent": 0.0}, 0.0, "sm"),
        ({"power_w": 350.0, "power_limit_w": 700.0}, 50.0, "draw"),
        ({"power_w": 350.0}, None, ""),
        ({"utilization_percent": 99.0}, None, ""),
        ({"mig_profile": "1g.10gb", "power_w": 350.0, "power_limit_w": 700.0}, None, ""),
    ],
)
def test_busy_is_measured_or_the_draw_or_unknown(said: dict[str, Any], busy: float | None, by: str) -> None:
    [found] = seen(node("n1", card(0, **said)))
    assert (found.busy_percent, found.busy_by) == (busy, by)


def test_capacity_adds_up_and_says_why() -> None:
    views = (node("n1", card(0), card(1), card(2, problem="dead")), node("n2", cordoned=True))
    [found] = devices.capacity(seen(*views, replicas=(on("a", 0),)))
    assert (found.total, found.used, found.free, found.unusable) == (5, 1, 1, 3)
    assert found.why == {"problem": 1, "cordoned": 2}


def test_a_node_is_whole_when_every_card_is_free() -> None:
    views = (node("n1"), node("n2"), node("n3", card(0), card(1, problem="dead")), NodeView("n4"))
    assert devices.whole(seen(*views, replicas=(on("a", 1),))) == ("n2",)


def test_what_holds_cards_counts_what_serves() -> None:
    found = devices.held(seen(node(), replicas=(on("a", 0), on("b", 1, state=State.LOADING))))
    assert [(h.model, h.replicas, dict(h.gpu_classes)) for h in found] == [("a", 1, {"h100-80g": 1})]


@pytest.fixture
def rows(db: None) -> None:
    link_is_up()
    port = {"adapter": "mlx5_0", "port": 1, "kind": "infiniband", "active": True, "subnet_manager": "0xaa", "rate_gbps": 400.0}  # fmt: skip # noqa: E501
    facts = {"gpus": [{"index": 0, "gpu_class": "h100-80g"}, {"index": 1, "gpu_class": "h100-80g", "problem": "dead"}],
             "rdma_ports": [port]}  # fmt: skip
    first = Node.objects.create(node_id="n1", connected=True, facts=facts)
    Node.objects.create(node_id="n2", connected=True, facts=facts)
    replica = Replica.objects.create(public_id="r-1", model="big", state="ready")
    Shard.objects.create(replica=replica, node=first, port=18000, devices=[0])


@pytest.mark.usefixtures("rows")
def test_cards_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("gpu", "list", "--json", "--model", "big")
    [found] = json.loads(capsys.readouterr().out)
    assert (found["node"], found["device"], found["state"], found["busy_percent"]) == ("n1", "0", "used", None)
    call_command("gpu", "list")
    assert "dead" in capsys.readouterr().out


@pytest.mark.usefixtures("rows")
def test_cards_by_the_api() -> None:
    from tenancy.models import Person

    client = APIClient()
    client.force_authenticate(Person.objects.create_superuser("root@example.com", "a long password"))
    assert client.get("/api/v1/gpus").json()["count"] == 4
    assert [g["node"] for g in client.get("/api/v1/gpus?model=big").json()["results"]] == ["n1"]
