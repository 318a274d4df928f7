"""The reconciler's passes and a replica's start and stop in traces: the control plane's own spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.conf import settings

from agent.wire import trace
from agent.wire.shard import ShardState
from fleet import models, passes, spans
from tests.fleet import rows
from tests.gateway.collector import Collector, attributes, collector

pytestmark = pytest.mark.django_db


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collector() as found:
        monkeypatch.setattr(settings, "MACHINE", replace(settings.MACHINE, tracing_endpoint=found.url))
        yield found
        spans._made.cache_clear()


def test_a_start_that_failed_one_that_served_and_a_stop(collected: Collector) -> None:
    rows.link_is_up()
    rows.joined()
    rows.tiny()
    passes.run()
    rows.beat(rows.seen(rows.told()[0], ShardState.FAILED, reason="CUDA out of memory at 0x7f"))
    models.Replica.objects.update(next_try_at=None)
    passes.run()
    spec = rows.told()[0]
    assert spec.incarnation == 2
    rows.beat(rows.seen(spec, ShardState.READY))
    rows.tiny(0)
    passes.run()
    models.Replica.objects.filter(state="draining").update(state="stopping")
    rows.beat()
    sender = spans._sender()
    assert sender is not None
    sender.close()
    told = collected.wait_for(10)
    found = [s for s in told if s.name.startswith("replica ")]
    first, second = found[:2]
    assert [(s.name, s.status.message) for s in (first, second)] == [
        ("replica start", "start_failed"),
        ("replica start", ""),
    ]
    for span, incarnation in ((first, 1), (second, 2)):
        wanted = trace.of_replica("start", spec.replica_id, incarnation)
        assert (int.from_bytes(span.trace_id, "big"), int.from_bytes(span.span_id, "big")) == (
            wanted.trace_id,
            wanted.span_id,
        )
        assert attributes(span)["llmgw.model"] == "tiny"
    assert [s.name for s in found[2:]] == ["replica stop"]
    assert b"CUDA" not in collected.raw, "codes, never sentences"


def test_a_pass_that_changes_something_tells_its_parts_and_its_steps(collected: Collector) -> None:
    rows.link_is_up()
    rows.joined()
    rows.tiny()
    assert passes.run().steps == 1
    assert passes.run().steps == 0
    sender = spans._sender()
    assert sender is not None
    sender.close()
    found = {s.name: s for s in collected.wait_for(5)}
    assert set(found) == {"reconcile", "load world", "plan", "commit", "place"}, "one that finds nothing to do is none"
    assert len({s.trace_id for s in found.values()}) == 1
    whole = found["reconcile"]
    assert attributes(whole)["llmgw.steps"] == 1
    for part in ("load world", "plan", "commit"):
        assert found[part].parent_span_id == whole.span_id
        assert whole.start_time_unix_nano <= found[part].start_time_unix_nano
        assert found[part].end_time_unix_nano <= whole.end_time_unix_nano
    place = found["place"]
    assert place.parent_span_id == found["commit"].span_id
    assert attributes(place) == {
        "llmgw.model": "tiny",
        "llmgw.profile": "cpu",
        "llmgw.node": "n1",
        "llmgw.nodes": 1,
    }
