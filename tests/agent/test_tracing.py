"""What a node does for a replica, as a collector gets it: under the place that the control plane makes of its id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.node.clock import Clock
from agent.node.settings import Collector, Settings, Tls
from agent.node.tracing import Tracing, configured
from agent.spans import Sender
from agent.wire import trace
from agent.wire.shard import ShardState
from tests.agent.node import KEY, Node, Scripted, tiny
from tests.agent.test_supervisor import SERVER
from tests.gateway.collector import attributes, collector

S = ShardState


def test_a_place_is_made_of_the_replicas_id_by_both_sides() -> None:
    start = trace.of_replica("start", "r-0123456789", 1)
    assert start == trace.of_replica("start", "r-0123456789", 1)
    others = [trace.of_replica(*at) for at in (("stop", "r-0123456789", 1), ("start", "r-0123456789", 2))]
    assert start.trace_id not in [o.trace_id for o in others]
    assert trace.parse(start.header()) == start


def test_without_a_collector_nothing_is_traced(tmp_path: Path) -> None:
    settings = Settings("n1", "wss://c:1/x", Tls(tmp_path, tmp_path, tmp_path))
    assert configured(settings, {}, Clock()) is None
    at = replace(settings, tracing=Collector("http://127.0.0.1:9", 0.0))
    assert configured(at, {}, Clock()) is None


@pytest.mark.slow
async def test_a_start_and_a_stop_and_a_failure(tmp_path: Path) -> None:
    with collector() as found:
        sender = Sender(found.url, "llmgw-agent", "n1", "llmgw.agent")
        node = Node(tmp_path, engine=Scripted(SERVER + "serve()"), tracing=Tracing(sender, 1.0, "n1", Clock()))
        node.want(tiny(engine="scripted"), tiny("r-2.0", engine="none"))
        await node.state(S.READY)
        await node.state(S.FAILED, shard_id="r-2.0")
        node.want()
        await node.until(lambda shards: not shards)
        sender.close()
        spans = found.wait_for(6)
    assert KEY.encode() not in found.raw
    assert found.resources[0]["service.name"] == "llmgw-agent"
    by_id = {s.span_id: s for s in spans}
    shown = {
        (s.name, by_id[s.parent_span_id].name if s.parent_span_id in by_id else "", s.status.message) for s in spans
    }
    assert shown == {
        ("start shard", "", ""),
        ("fetch weights", "start shard", ""),
        ("launch engine", "start shard", ""),
        ("wait for engine", "start shard", ""),
        ("stop shard", "", ""),
        ("start shard", "", "cannot_start"),
    }
    started = next(s for s in spans if s.name == "start shard" and not s.status.message)
    parent = trace.of_replica("start", "r-1", 1)
    assert int.from_bytes(started.trace_id, "big") == parent.trace_id
    assert int.from_bytes(started.parent_span_id, "big") == parent.span_id
    said = attributes(started)
    assert said.pop("llmgw.asked") >= 1
    assert said == {
        "llmgw.node": "n1", "llmgw.replica": "r-1", "llmgw.model": "tiny", "llmgw.engine": "scripted", "llmgw.rank": 0,
        "llmgw.incarnation": 1,
    }  # fmt: skip
    assert all(s.start_time_unix_nano <= s.end_time_unix_nano for s in spans)
