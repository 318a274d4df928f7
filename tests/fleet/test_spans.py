"""A replica's start and stop in traces: the control plane's own spans, where the nodes' hang."""

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
    found = collected.wait_for(2)
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
