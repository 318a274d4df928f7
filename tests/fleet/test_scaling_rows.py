"""Scaling by load over rows: what gateways tell lies in Redis, a pass reads it, the history and `why` say it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.wire.shard import ShardState
from fleet import models, nudges, passes, scaling
from llmgw import demand
from llmgw.cluster import why
from llmgw.cluster.actions import settings
from tests.fleet import rows
from tests.fleet.test_life import ready
from tests.fleet.test_life import scaling as rescaled

pytestmark = pytest.mark.django_db
EDGE = "test-edge"


@pytest.fixture(autouse=True)
def fresh(redis_url: str) -> Iterator[None]:
    scaling.forget()
    client = nudges.client()
    client.delete(demand.EDGES)
    yield
    client.delete(demand.EDGES, demand.KEY + EDGE)
    scaling.forget()


def told(waiting: int = 0, in_flight: int = 0) -> None:
    """By an edge, as its last word."""
    client = nudges.client()
    client.hset(demand.EDGES, EDGE, "{}")
    client.set(demand.KEY + EDGE, demand.encode(demand.Word({"tiny": demand.Asked(waiting, in_flight)})))


def test_requests_that_wait_start_one_more_and_a_quiet_spell_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows.link_is_up()
    rows.joined()
    rows.serving()
    rescaled(min=1, max=3)
    document = {"fleet": {"scale_up_after_s": 0, "scale_pause_s": 0, "scale_down_after_s": 0}}
    settings.save(document=document, base=0, actor="test")
    told(waiting=3, in_flight=2)
    passes.run()
    assert models.Replica.objects.count() == 2
    passes.run()
    assert models.Replica.objects.count() == 2, "one that starts is not counted twice"
    line = models.ReplicaEvent.objects.get(state="scaled")
    assert (line.model, line.replica) == ("tiny", "")
    assert line.reason == "from 1 to 2 replicas: 3 requests wait, and its only place has been taken for 0 s"
    said = [r["sentence"] for r in why.why("tiny")["reasons"]]
    assert any("its load moved it from 1 to 2 replicas: 3 requests wait" in s for s in said), said

    ready()
    told(in_flight=0)
    passes.run()
    assert sorted(models.Replica.objects.values_list("state", flat=True)) == ["draining", "ready"]
    assert models.ReplicaEvent.objects.filter(state="scaled").count() == 2
    passes.run()
    assert models.Replica.objects.filter(state="ready").count() == 1


def test_where_no_gateway_is_heard_the_number_stays() -> None:
    rows.link_is_up()
    rows.joined()
    rows.serving()
    rescaled(min=1, max=3)
    settings.put(path="fleet.scale_up_after_s", value=0, actor="test")
    told(waiting=3)
    passes.run()
    rows.beat(*(rows.seen(spec, ShardState.READY) for spec in rows.told()))
    nudges.client().delete(demand.KEY + EDGE)
    settings.put(path="fleet.scale_down_after_s", value=0, actor="test")
    passes.run()
    assert models.Replica.objects.filter(state="ready").count() == 2
