"""Tags from a client to the books and the metrics, and never to the engine."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from llmgw import metrics, series
from tests.gateway.edges import AUTH, EdgeProcess, chat, endpoint
from tests.gateway.upstreams import Call, answer, engine

CHAT = "/v1/chat/completions"


async def _answer(call: Call) -> None:
    await call.whole(answer())


@pytest.mark.parametrize("stream", [False, True])
async def test_tags_reach_the_books_and_not_the_engine(
    edge: EdgeProcess, http: httpx.AsyncClient, stream: bool
) -> None:
    body = chat(user="customer-42", metadata={"feature": "search", "env": "dev"}, stream=stream)
    async with engine(_answer) as up:
        edge.serve(endpoint(up.port))
        headers = {"x-llmgw-tags": "env=prod", "x-session-id": "s-1"}
        found = await http.post(CHAT, json=body, headers=headers)
    sent = up.calls[0].json
    assert "metadata" not in sent
    assert sent["user"] == "customer-42"
    assert sent["messages"] == body["messages"]
    intent, _settled = edge.books()[found.headers["x-request-id"]]
    assert (intent.session, intent.end_user) == ("s-1", "customer-42")
    assert intent.tags == {"feature": "search", "env": "prod"}


async def test_a_tag_that_is_none_is_refused_and_booked(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(_answer) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(metadata={"a": 1}))
        assert (found.status_code, found.json()["error"]["param"]) == (400, "metadata")
        found = await http.post(CHAT, json=chat(), headers={"x-llmgw-tags": "search"})
        assert (found.status_code, found.json()["error"]["code"]) == (400, "invalid_tags")
        assert edge.settlement(found.headers["x-request-id"]).outcome == "refused"
        assert not up.calls


async def test_nothing_costs_where_there_are_none(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(_answer) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(metadata=None))
    assert up.calls[0].json["metadata"] is None, "what needs no change passes as it came"
    assert edge.books()[found.headers["x-request-id"]][0].tags == {}


async def test_named_tags_have_series(own_edge: EdgeProcess) -> None:
    own_edge.start()
    async with engine(_answer) as up, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH) as http:
        own_edge.serve(endpoint(up.port), tag_labels=("feature",))
        for n in range(104):
            found = await http.post(CHAT, json=chat(metadata={"feature": f"f{n % 103}", "env": "prod"}))
            assert found.status_code == 200
    deadline = time.monotonic() + 5
    while sum((counted := _counted(own_edge, series.TAGGED_REQUESTS)).values()) < 104:
        assert time.monotonic() < deadline, counted
        await asyncio.sleep(0.05)
    assert len(counted) == 101
    assert counted["feature", "f0", "ok"] == 2
    assert counted["feature", "other", "ok"] == 3
    assert {labels[2] for labels in _counted(own_edge, series.TAGGED_TOKENS)} == {"prompt", "completion"}


def _counted(edge: EdgeProcess, metric: series.Metric) -> dict[tuple[str, ...], float]:
    with edge.client() as client:
        states = [metrics.decode(client.get(key)) for key in client.scan_iter(f"{metrics.PREFIX}edge-*")]
    return {tuple(labels): value for s in states for name, labels, value in s.counters if name == metric.name}
