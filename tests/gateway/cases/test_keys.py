"""Keys and budgets, each by the number of its case. Revocation (B045) and secrets in logs (B047) are tested at the
edge's door, in `test_edge.py` and `test_publishing.py`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest

from tests.gateway.edges import AUTH, MODEL, EdgeProcess, chat, endpoint
from tests.gateway.ledger.world import UNIT, held, level, model, money, serve
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, usage


def counted(prompt: int, completion: int) -> dict[str, object]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return answer(usage=counts)


@pytest.mark.parametrize("kind", ["key", "project", "team", "organisation"])
async def test_b041_a_budget_that_many_see_at_once(edge: EdgeProcess, http: httpx.AsyncClient, kind: str) -> None:
    async def slow(call: Call) -> None:
        await asyncio.sleep(0.3)
        await call.whole(counted(10, 400))

    budget = level(kind, budget=UNIT)
    async with engine(slow) as upstream:
        serve(edge, [endpoint(upstream.port)], [budget], model(completion=1_000_000), spent=UNIT // 2)
        began = time.monotonic()
        calls = [http.post("/v1/chat/completions", json=chat(max_tokens=400)) for _ in range(20)]
        answers = await asyncio.gather(*calls)
    assert Counter(a.status_code for a in answers) == {200: 1, 429: 19}
    assert len(upstream.calls) == 1
    refused = next(a for a in answers if a.status_code == 429)
    assert refused.elapsed.total_seconds() < 0.3 or time.monotonic() - began < 1.5
    error = refused.json()["error"]
    assert error["type"] == error["code"] == "insufficient_quota"
    assert "0.50 of its budget of 1.00" in error["message"]
    await until(lambda: money(edge, budget) == (9 * UNIT // 10, 0))


async def test_b042_reservations(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    release = asyncio.Event()

    async def waits(call: Call) -> None:
        if b"fail" in call.body:
            await call.whole({"error": {"message": "broken"}}, 500)
            return
        await release.wait()
        await call.whole(counted(10, 100))

    budget = level("key", budget=2000 * UNIT)
    async with engine(waits) as upstream:
        priced = model(prompt=1_000_000, completion=1_000_000, context_length=32768, max_output=8192)
        serve(edge, [endpoint(upstream.port)], [budget], priced, spent=140_000_000, policies={"retries": 0})
        first, second, absurd = (
            asyncio.create_task(http.post("/v1/chat/completions", json=chat(**more)))
            for more in ({}, {}, {"max_tokens": 999_999_999})
        )
        await until(lambda: len(upstream.calls) == 3)
        assert sorted(call.json["max_tokens"] for call in upstream.calls) == [4096, 4096, 8192]
        spent, reserved = money(edge, budget)
        assert spent == 140_000_000
        assert 16 * UNIT < reserved < 17 * UNIT

        with pytest.raises(httpx.ReadTimeout):  # leaves before the first token
            await http.post("/v1/chat/completions", json=chat(), timeout=0.2)
        failed = await http.post("/v1/chat/completions", json=chat(user="fail"))
        assert failed.status_code == 502
        await until(lambda: money(edge, budget)[1] == reserved)

        release.set()
        for task in (first, second, absurd):
            assert (await task).status_code == 200
        await until(lambda: money(edge, budget)[1] == 0)
        charged = [s.cost or 0 for _, s in edge.books().values() if s is not None and s.cost is not None]
        assert money(edge, budget)[0] - 140_000_000 == sum(charged[-5:])

        one = (5 + 20) * 1_000_000  # the estimate of "hi" and a message around it, and 20 tokens
        exact = level("key", budget=one)
        serve(edge, [endpoint(upstream.port)], [exact], priced)
        fits = await http.post("/v1/chat/completions", json=chat(max_tokens=20))
        assert fits.status_code == 200
        assert fits.headers["x-llmgw-budget-remaining"] == "0.00"


async def test_b050_tokens_a_minute(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def slow(call: Call) -> None:
        await asyncio.sleep(0.2)
        await call.whole(counted(50, 40))

    limit = level("key", rpm=60, tpm=100)
    body = chat(messages=[{"role": "user", "content": "abcd" * 46}], max_tokens=40)
    async with engine(slow) as upstream:
        serve(edge, [endpoint(upstream.port)], [limit], policies={"window_s": 1.0})
        answers = await asyncio.gather(*(http.post("/v1/chat/completions", json=body) for _ in range(5)))
        assert Counter(a.status_code for a in answers) == {200: 1, 429: 4}
        refused = next(a for a in answers if a.status_code == 429)
        error = refused.json()["error"]
        assert error["type"] == "rate_limit_exceeded"
        assert "this key allows 100 tokens a minute" in error["message"]
        assert all(int(v) >= 0 for k, v in refused.headers.items() if k.startswith("x-ratelimit-remaining"))

        again = await http.post("/v1/chat/completions", json=body)
        wait_s = int(again.headers["retry-after"])
        assert 1 <= wait_s <= 2
        await asyncio.sleep(wait_s)
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200

        never = await http.post("/v1/chat/completions", json=chat(max_tokens=200))
        assert never.status_code == 429
        assert "retry-after" not in never.headers
        assert "it can never fit" in never.json()["error"]["message"]


async def test_b011_who_leaves_pays_for_what_came(edge: EdgeProcess) -> None:
    async def slowly(call: Call) -> None:
        if not call.json.get("stream") or b"silent" in call.body:
            await asyncio.sleep(20)
        await call.stream(delta("a"), end=False)
        for _ in range(100):
            await asyncio.sleep(0.1)
            await call.piece(delta("a"))
        await call.stream(finish(), usage(), DONE)

    limit = level("key", concurrent=5, budget=100 * UNIT)
    async with engine(slowly) as upstream:
        serve(edge, [endpoint(upstream.port)], [limit], model(prompt=10, completion=1_000_000))
        before = frozenset(edge.books())
        async with (
            httpx.AsyncClient(base_url=edge.url, headers=AUTH) as client,
            client.stream("POST", "/v1/chat/completions", json=chat(model="helper", stream=True)) as streamed,
        ):
            seen = b""
            async for data in streamed.aiter_raw():
                seen += data
                if seen.count(b'"content"') >= 3:
                    break
        left = edge.last(before=before)
        assert (left.outcome, left.served) == ("client_left", "")
        assert left.completion_tokens in (3, 4)
        assert left.cost is not None
        assert left.cost == left.completion_tokens * 1_000_000 + (left.prompt_tokens or 0) * 10
        await until(lambda: held(edge, limit) == (0, 0))
        await until(lambda: money(edge, limit) == (left.cost, 0))
        for body in (chat(user="silent", stream=True), chat(user="silent")):
            before = frozenset(edge.books())
            async with httpx.AsyncClient(base_url=edge.url, headers=AUTH, timeout=0.3) as client:
                with pytest.raises(httpx.ReadTimeout):
                    await client.post("/v1/chat/completions", json=body)
            left = edge.last(before=before)
            assert (left.outcome, left.completion_tokens) == ("client_left", 0)
            await until(lambda: held(edge, limit) == (0, 0))
    assert edge.books()[left.id][0].model == MODEL


async def until(true: object, timeout_s: float = 2) -> None:
    """Until `true()` is."""
    deadline = time.monotonic() + timeout_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
