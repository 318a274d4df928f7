"""A request's trace, from its caller's `traceparent` through the gateway to the engine, as a collector gets it."""

from __future__ import annotations

import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from gateway.core import trace
from tests.gateway.collector import attributes, collector
from tests.gateway.edges import AUTH, EdgeProcess, chat, endpoint
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, usage

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
SECRET = "the-words-of-the-prompt"
SAID = [{"role": "user", "content": SECRET}]


async def good(call: Call) -> None:
    end = finish() + usage() + DONE
    await (call.stream(delta("ok"), end) if call.json.get("stream") else call.whole(answer(SECRET)))


async def test_one_trace_from_the_client_to_the_engine(own_edge: EdgeProcess) -> None:
    with collector() as found:
        own_edge.start(OTEL_EXPORTER_OTLP_ENDPOINT=found.url)
        async with engine(good) as upstream, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH) as http:
            own_edge.serve(endpoint(upstream.port))
            body = chat(messages=SAID, stream=True, temperature=0.5, max_tokens=9)
            headers = {"traceparent": PARENT, "tracestate": "vendor=1", "x-session-id": "s-1"}
            answered = await http.post("/v1/chat/completions", json=body, headers=headers)
            assert answered.status_code == 200
            spans = found.wait_for(4)
            told = upstream.calls[0].headers
    own, *rest = sorted(spans, key=lambda s: not s.name.startswith("inference"))
    assert own.name == "inference /v1/chat/completions"
    assert {s.trace_id.hex() for s in spans} == {TRACE}
    assert own.parent_span_id.hex() == "00f067aa0ba902b7"
    assert [s.name for s in rest] == ["admission", "schedule", "upstream"]
    assert all(s.parent_span_id == own.span_id for s in rest)
    assert all(own.start_time_unix_nano <= s.start_time_unix_nano <= s.end_time_unix_nano for s in rest)
    assert abs(own.start_time_unix_nano / 1e9 - time.time()) < 60
    upstream_span = rest[-1]
    assert told["traceparent"] == f"00-{TRACE}-{upstream_span.span_id.hex()}-01"
    assert told["tracestate"] == "vendor=1"
    said = attributes(own)
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.request.model"] == said["gen_ai.response.model"] == "orchid-8b"
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (11, 2)
    assert (said["gen_ai.request.max_tokens"], said["gen_ai.request.temperature"]) == (9, 0.5)
    assert said["llmgw.request_id"] == answered.headers["x-request-id"]
    assert attributes(upstream_span)["gen_ai.provider.name"] == "llamacpp"
    assert attributes(rest[1])["llmgw.route"] == "the only replica"
    assert found.resources[0]["service.name"] == "llmgw-server"


async def test_nothing_that_was_said_is_in_a_trace(own_edge: EdgeProcess) -> None:
    async def bad(call: Call) -> None:
        await call.whole({"error": {"message": f"cannot read {SECRET}"}}, 400 if call.number == 2 else 500)

    with collector() as found:
        own_edge.start(OTEL_EXPORTER_OTLP_ENDPOINT=found.url)
        async with engine(bad) as upstream, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH) as http:
            own_edge.serve(endpoint(upstream.port), retries=1)
            answered = await http.post("/v1/chat/completions", json=chat(messages=SAID))
            assert answered.status_code == 400
            spans = found.wait_for(6)
    attempts = [s for s in spans if s.name == "upstream"]
    assert [s.status.message for s in attempts] == ["500", ""], "each attempt, and its code"
    assert attributes(next(s for s in spans if s.name.startswith("inference")))["http.response.status_code"] == 400
    assert SECRET.encode() not in found.raw
    assert AUTH["authorization"].encode() not in found.raw


async def test_the_callers_decision_holds_and_its_context_reaches_the_engine(edge: EdgeProcess) -> None:
    """Without a collector nothing is traced; an engine that traces still hears of its caller."""
    async with engine(good) as upstream, httpx.AsyncClient(base_url=edge.url, headers=AUTH) as http:
        edge.serve(endpoint(upstream.port))
        await http.post("/v1/chat/completions", json=chat(), headers={"traceparent": PARENT})
        await http.post("/v1/chat/completions", json=chat(), headers={"traceparent": "junk"})
        await http.post("/v1/chat/completions", json=chat())
        assert [c.headers.get("traceparent") for c in upstream.calls] == [PARENT, None, None]


async def test_a_request_that_its_caller_does_not_record_is_not_sent(own_edge: EdgeProcess) -> None:
    with collector() as found:
        own_edge.start(OTEL_EXPORTER_OTLP_ENDPOINT=found.url)
        async with engine(good) as upstream, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH) as http:
            own_edge.serve(endpoint(upstream.port))
            await http.post("/v1/chat/completions", json=chat(), headers={"traceparent": PARENT[:-1] + "0"})
            last = await http.post("/v1/chat/completions", json=chat())
            spans = found.wait_for(4)
            assert upstream.calls[0].headers["traceparent"] == PARENT[:-1] + "0"
    (own,) = [s for s in spans if s.name.startswith("inference")]
    assert attributes(own)["llmgw.request_id"] == last.headers["x-request-id"]


async def test_a_collector_that_is_away_harms_nobody(own_edge: EdgeProcess) -> None:
    own_edge.start(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    async with engine(good) as upstream, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH) as http:
        own_edge.serve(endpoint(upstream.port))
        for _ in range(20):
            assert (await http.post("/v1/chat/completions", json=chat())).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"00-0-0-01",
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-" + b"a" * 32 + b"-" + b"0" * 16 + b"-01",
        b"ff-" + b"a" * 32 + b"-00f067aa0ba902b7-01",
        b"00-" + b"A" * 32 + b"-00f067aa0ba902b7-01",
        b"00-" + b"a" * 32 + b"-00f067aa0ba902b7-01-more",
    ],
)
def test_a_header_that_is_no_context_begins_a_trace_anew(header: bytes | None) -> None:
    assert trace.parse(header) is None


def test_a_later_version_may_say_more() -> None:
    assert trace.parse(b"cc-" + b"a" * 32 + b"-00f067aa0ba902b7-01-more") == trace.Context(
        int("a" * 32, 16), 0x00F067AA0BA902B7, True
    )


@given(st.integers(1, 2**128 - 1), st.floats(0, 1))
def test_the_ratio_decides_as_opentelemetrys_does(trace_id: int, ratio: float) -> None:
    theirs = TraceIdRatioBased(ratio).should_sample(None, trace_id, "x").decision
    assert trace.sampled(trace_id, ratio) == (theirs == Decision.RECORD_AND_SAMPLE)
