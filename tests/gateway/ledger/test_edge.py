"""Limits at the edge's door: what is said, what is sent to the engine, and what follows a spent budget."""

from __future__ import annotations

from dataclasses import replace

import httpx

from gateway.core.snapshot import Reuse
from tests.gateway.cases.test_keys import counted, until
from tests.gateway.edges import MODEL, EdgeProcess, chat, endpoint
from tests.gateway.ledger.world import UNIT, held, level, model, money, serve
from tests.gateway.upstreams import Call, engine


async def quick(call: Call) -> None:
    await call.whole(counted(10, 40))


async def test_headers_say_what_is_left(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    levels = [level("organisation", rpm=5, tpm=1000), level("key", rpm=9, tpm=500, budget=UNIT)]
    async with engine(quick) as upstream:
        serve(edge, [endpoint(upstream.port)], levels, model(completion=1_000_000))
        found = (await http.post("/v1/chat/completions", json=chat(max_tokens=40))).headers
    assert {k: v for k, v in found.items() if k.startswith(("x-ratelimit", "x-llmgw-budget"))} == {
        "x-ratelimit-limit-requests": "5",
        "x-ratelimit-remaining-requests": "4",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "500",
        "x-ratelimit-remaining-tokens": "455",
        "x-ratelimit-reset-tokens": "1m0s",
        "x-llmgw-budget-limit": "1.00",
        "x-llmgw-budget-remaining": "0.96",
    }
    async with engine(quick) as upstream:
        serve(edge, [endpoint(upstream.port)], [])
        found = (await http.post("/v1/chat/completions", json=chat())).headers
    assert not [k for k in found if k.startswith(("x-ratelimit", "x-llmgw-budget"))]


async def test_requests_a_minute(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """What is refused uses nothing up."""
    async with engine(quick) as upstream:
        serve(edge, [endpoint(upstream.port)], [level("team", rpm=2)], policies={"window_s": 2.0})
        statuses = [(await http.post("/v1/chat/completions", json=chat())).status_code for _ in range(5)]
        assert statuses == [200, 200, 429, 429, 429]
        refused = await http.post("/v1/chat/completions", json=chat())
        assert "this project's team allows 2 requests a minute, and 2 were made" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 3
    assert len(upstream.calls) == 2


async def test_zero_allows_nothing(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(quick) as upstream:
        for limit in ({"rpm": 0}, {"concurrent": 0}, {"tpm": 0}):
            serve(edge, [endpoint(upstream.port)], [level("project", **limit)])
            refused = await http.post("/v1/chat/completions", json=chat())
            assert refused.status_code == 429
            assert refused.headers["x-should-retry"] == "false"
            assert "retry-after" not in refused.headers
    assert not upstream.calls


async def test_a_spent_budget_drops_to_a_cheaper_model(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(quick) as upstream:
        both = [endpoint(upstream.port), endpoint(upstream.port, "r-0000000002", "orchid-mini")]
        dear, free = model(completion=1_000_000), model("orchid-mini")
        limit = level("project", budget=UNIT)
        serve(edge, both, [limit], dear, free, spent=UNIT, when_spent="orchid-mini")
        found = await http.post("/v1/chat/completions", json=chat(max_tokens=40))
        assert found.status_code == 200
        assert found.headers["x-llmgw-served-model"] == "orchid-mini"
        assert found.headers["x-llmgw-fallback"] == "budget"
        assert upstream.calls[-1].json["model"] == "orchid-mini"
        settled = edge.settlement(found.headers["x-request-id"])
        intent = edge.books()[settled.id][0]
        assert (intent.model, settled.served, settled.cost) == (MODEL, "orchid-mini", 0)
        await until(lambda: money(edge, limit) == (UNIT, 0))

        serve(edge, both, [limit], dear, free, spent=UNIT)
        refused = await http.post("/v1/chat/completions", json=chat(max_tokens=40))
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "insufficient_quota"
        assert "until 2025-12-01 00:00 UTC" in refused.json()["error"]["message"]
        assert (await http.post("/v1/chat/completions", json=chat(model="orchid-mini"))).status_code == 200


async def test_a_budget_of_which_nothing_is_known(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """Nothing priced is admitted on it."""
    async with engine(quick) as upstream:
        free = model("orchid-mini")
        both = [endpoint(upstream.port), endpoint(upstream.port, "r-0000000002", "orchid-mini")]
        limit = replace(level("key", budget=UNIT), period="2026-12")
        serve(edge, both, [limit], model(completion=1_000), free, spent=None)
        refused = await http.post("/v1/chat/completions", json=chat())
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "ledger_away")
        assert (await http.post("/v1/chat/completions", json=chat(model="orchid-mini"))).status_code == 200


async def test_an_answer_given_again_counts_as_a_request_only(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    limit = level("key", rpm=3, tpm=60, budget=UNIT)
    body = chat(max_tokens=40, temperature=0)
    async with engine(quick) as upstream:
        serve(edge, [endpoint(upstream.port)], [limit], model(completion=1_000_000), reuse=Reuse(60.0))
        found = [await http.post("/v1/chat/completions", json=body) for _ in range(4)]
    assert [a.status_code for a in found] == [200, 200, 200, 429]
    assert [a.headers["x-llmgw-cache"] for a in found[:3]] == ["miss", "hit", "hit"]
    assert edge.settlement(found[1].headers["x-request-id"]).cost == 0
    await until(lambda: money(edge, limit) == (40_000_000, 0))
    assert len(upstream.calls) == 1


async def test_what_fails_costs_nothing(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def fails(call: Call) -> None:
        await call.whole({"error": {"message": "no"}}, int(call.json["user"]))

    limit = level("key", concurrent=2, tpm=1000, budget=UNIT)
    async with engine(fails) as upstream:
        serve(edge, [endpoint(upstream.port)], [limit], model(prompt=1_000, completion=1_000), policies={"retries": 0})
        for status in (500, 400, 429):
            found = await http.post("/v1/chat/completions", json=chat(user=str(status), max_tokens=40))
            assert found.status_code >= 400
            assert edge.settlement(found.headers["x-request-id"]).cost == 0
            await until(lambda: held(edge, limit) == (0, 0))
    await until(lambda: money(edge, limit) == (0, 0))
