"""What of the fleet people are told: through passes over rows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agent.wire.shard import ShardState
from catalog.models import Model
from fleet import models, passes
from fleet.actions import nodes, replicas
from fleet.core import noticing
from fleet.core.world import NodeView, World
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.models import Lease, Notice
from tests.fleet.rows import LINK, beat, joined, link_is_up, seen, serving, tiny, told

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _link(db: None) -> None:
    link_is_up()


def silent(node_id: str = "n1") -> None:
    long_ago = timezone.now() - timedelta(minutes=5)
    models.Node.objects.filter(node_id=node_id).update(connected=False, last_seen=long_ago)
    Lease.objects.filter(name=LINK).update(taken_at=long_ago)


def standing() -> dict[str, str]:
    return {row.kind: row.message for row in Notice.objects.filter(over_at=None)}


def tell_all() -> None:
    """As if every notice had been told."""
    Notice.objects.filter(told_at=None).update(told_at=timezone.now())


def test_a_lost_node_and_its_coming_back() -> None:
    joined()
    serving()
    assert standing() == {}
    silent()
    passes.run()
    passes.run()
    assert standing() == {"node_lost": "the node n1 has not been heard for 20 s; one replica was there"}
    tell_all()
    joined()
    passes.run()
    assert standing() == {}
    assert Notice.objects.get(kind="node_back").message == "the node n1 is heard again"


def test_a_drained_node_may_go_and_a_removed_one_is_forgotten() -> None:
    joined()
    joined("n2")
    nodes.drain(node_id="n2", actor="test")
    silent("n2")
    passes.run()
    assert standing() == {}
    silent("n1")
    passes.run()
    assert list(standing()) == ["node_lost"]
    nodes.remove(node_id="n1", actor="test")
    passes.run()
    assert standing() == {}
    assert not Notice.objects.filter(kind="node_back").exists()


def test_silence_means_nothing_before_all_had_their_time_to_report() -> None:
    world = World(nodes=(NodeView("n1", lost=True, connected=False),), synced=False)
    assert noticing.standings(world, ()) == {}


def test_a_parked_model_until_it_serves_again() -> None:
    joined()
    tiny()
    cluster_settings.put(path="fleet.park_after", value=1, actor="test")
    passes.run()
    beat(seen(told()[0], ShardState.FAILED, reason="out of memory"))
    passes.run()
    row = models.Replica.objects.filter(state="parked").first()
    assert row is not None
    message = standing()["model_parked"]
    assert message.startswith("the model tiny is parked on n1, it is not served: ")
    assert "out of memory" in message
    notice = Notice.objects.get()
    assert notice.command.startswith("llmgw replica retry r-")
    assert notice.detail["ready"] == 0
    tell_all()
    replicas.retry(replica=row.public_id, actor="test")
    passes.run()
    assert list(standing()) == ["model_parked"]  # it is only being tried again
    beat(seen(told()[0], ShardState.READY))
    passes.run()
    assert standing() == {}
    assert Notice.objects.get(kind="model_served").message == "the model tiny serves again"


def test_a_parked_model_that_nobody_wants_any_more_is_of_no_interest() -> None:
    joined()
    tiny()
    cluster_settings.put(path="fleet.park_after", value=1, actor="test")
    passes.run()
    beat(seen(told()[0], ShardState.FAILED, reason="out of memory"))
    passes.run()
    tell_all()
    Model.objects.all().delete()
    passes.run()
    assert standing() == {}
    assert Notice.objects.count() == 1
