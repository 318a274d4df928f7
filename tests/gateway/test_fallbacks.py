"""A model that cannot answer is answered for: when, by whom, and what the caller and the books are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gateway.core import snapshot
from tests.gateway.edges import MODEL, EdgeProcess, chat, content, endpoint, scope
from tests.gateway.ledger import world
from tests.gateway.providers import NAME, Keys, external, own, serve, wait_for_standing
from tests.gateway.upstreams import DONE, HEAD, Call, answer, delta, engine, finish, usage

CHAT = "/v1/chat/completions"
END = finish() + usage() + DONE
SECOND = "orchid-mini"
ONE, TWO = "r-0000000001", "r-0000000002"


async def good(call: Call) -> None:
    await (call.stream(delta("ok"), END) if call.json.get("stream") else call.whole(answer()))


async def broken(call: Call) -> None:
    await call.whole({"error": {"message": "out of memory"}}, 500)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "no_capacity"),
        ({"state": "loading"}, "model_loading"),
        ({"state": "parked"}, "model_parked"),
        ({"state": "stopped"}, "model_stopped"),
        ({"state": "no_capacity"}, "no_capacity"),
    ],
)
async def test_without_a_replica_the_next_model_answers(
    edge: EdgeProcess, http: httpx.AsyncClient, fields: dict[str, str], reason: str
) -> None:
    async with engine(good) as two:
        asked = replace(own(fallbacks=(SECOND,)), **fields)
        serve(edge, asked, own(SECOND), endpoints=(endpoint(two.port, TWO, SECOND),))
        found = await http.post(CHAT, json=chat(model="helper"))
        assert found.status_code == 200, found.text
        assert two.calls[0].json["model"] == SECOND
    told = {n: found.headers[f"x-llmgw-{n}"] for n in ("served-model", "fallback", "replica", "route")}
    assert told == {
        "served-model": SECOND,
        "fallback": reason,
        "replica": TWO,
        "route": f"instead of {MODEL}, which could not answer ({reason}): the only replica",
    }
    request = found.headers["x-request-id"]
    row, intent = edge.settlement(request), edge.books()[request][0]
    assert (intent.model, intent.asked, row.served) == (MODEL, "helper", SECOND)
    assert (row.hops, row.route) == ((f"{MODEL}: {reason}",), told["route"])


async def test_replicas_that_all_drain_or_fail_or_rest(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def busy(call: Call) -> None:
        await call.whole({"error": {"message": "full"}}, 429, "retry-after: 20")

    async with engine(good) as two:
        for script, drains, reason in (
            (good, True, "no_capacity"),
            (broken, False, "500"),
            (busy, False, "engine_busy"),
        ):
            async with engine(script) as one:
                first = endpoint(one.port, ONE, draining=drains)
                serve(edge, own(fallbacks=(SECOND,)), own(SECOND), endpoints=(first, endpoint(two.port, TWO, SECOND)))
                for stream in (False, True):
                    found = await http.post(CHAT, json=chat(stream=stream))
                    assert (found.status_code, found.headers["x-llmgw-fallback"]) == (200, reason)
                    assert found.headers["x-llmgw-served-model"] == SECOND
                row = edge.settlement(found.headers["x-request-id"])
                assert row.hops[-1] == f"{MODEL}: {reason}"
                if script is broken:
                    assert row.hops[0] == f"{MODEL}@{ONE}: the engine answered with status 500: out of memory"


async def test_never_for_a_callers_fault_and_never_after_content(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        if call.json.get("stream"):
            await call.raw(HEAD)
            await call.piece(delta("so "))
            call.reset()
        else:
            await call.whole({"error": {"message": "too long", "type": "invalid_request_error"}}, 400)

    async with engine(script) as one, engine(good) as two:
        serve(
            edge, own(fallbacks=(SECOND,)), own(SECOND), endpoints=(endpoint(one.port), endpoint(two.port, TWO, SECOND))
        )
        found = await http.post(CHAT, json=chat())
        assert (found.status_code, found.json()["error"]["message"]) == (400, "too long")
        assert "x-llmgw-fallback" not in found.headers
        found = await http.post(CHAT, json=chat(stream=True))
        assert content(found.content) == "so "
        assert b'"error"' in found.content
        assert found.headers["x-llmgw-served-model"] == MODEL
        assert two.calls == []


async def test_where_nobody_can_answer_the_first_reason_is_told(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    loading = replace(own(fallbacks=(SECOND, "gone")), state="loading", retry_after_s=7)
    serve(edge, loading, replace(own(SECOND), state="parked"))
    found = await http.post(CHAT, json=chat())
    assert (found.status_code, found.json()["error"]["code"], found.headers["retry-after"]) == (
        503,
        "model_loading",
        "7",
    )
    assert "x-llmgw-served-model" not in found.headers, "nobody served it"
    row = edge.settlement(found.headers["x-request-id"])
    assert row.hops == (f"{MODEL}: model_loading", f"{SECOND}: model_parked", "gone: there is no such model")


async def test_to_a_provider_and_from_one(edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys) -> None:
    async def provider(call: Call) -> None:
        if call.headers["authorization"].endswith("busy"):
            await call.whole({"error": {"message": "slow down"}}, 429)
        else:
            await good(call)

    async with engine(provider) as there, engine(good) as two:
        url = f"http://127.0.0.1:{there.port}"
        away = external(url, keys.write(1, "fine"))
        busy = external(url, keys.write(2, "busy"), name="cloud-max", fallbacks=(SECOND,))
        serve(edge, away, busy, own(fallbacks=(NAME,)), own(SECOND), endpoints=(endpoint(two.port, TWO, SECOND),))
        found = await http.post(CHAT, json=chat())
        assert found.headers["x-llmgw-replica"] == f"external:{NAME}#1"
        assert (found.headers["x-llmgw-served-model"], found.headers["x-llmgw-fallback"]) == (NAME, "no_capacity")
        found = await http.post(CHAT, json=chat(model="cloud-max", stream=True))
        assert (found.headers["x-llmgw-served-model"], found.headers["x-llmgw-fallback"]) == (SECOND, "provider_busy")
        kept = replace(scope(), in_cluster=True)
        serve(
            edge,
            away,
            busy,
            own(fallbacks=(NAME, SECOND)),
            own(SECOND),
            endpoints=(endpoint(two.port, TWO, SECOND),),
            scope=kept,
        )
        found = await http.post(CHAT, json=chat())
        assert found.headers["x-llmgw-served-model"] == SECOND
        assert edge.settlement(found.headers["x-request-id"]).hops == (f"{MODEL}: no_capacity", f"{NAME}: residency")
        allowed = snapshot.Scope("o1", "t1", "p1", allow=(MODEL, SECOND))
        serve(
            edge,
            away,
            own(fallbacks=(NAME, SECOND)),
            own(SECOND),
            endpoints=(endpoint(two.port, TWO, SECOND),),
            scope=allowed,
        )
        assert (await http.post(CHAT, json=chat())).headers["x-llmgw-served-model"] == SECOND
        assert len(there.calls) == 2


async def test_a_stream_kept_open_goes_on_with_another_model(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """The headers are out before anybody knows who answers: they name nobody."""

    async def slow(call: Call) -> None:
        await asyncio.sleep(0.5)
        await broken(call)

    async with engine(slow) as one, engine(good) as two:
        serve(
            edge,
            own(fallbacks=(SECOND,)),
            own(SECOND),
            endpoints=(endpoint(one.port), endpoint(two.port, TWO, SECOND)),
            keepalive_s=0.1,
            retries=0,
        )
        found = await http.post(CHAT, json=chat(stream=True))
        assert content(found.content) == "ok"
        assert b": keep-alive" in found.content
        assert "x-llmgw-served-model" not in found.headers
        assert edge.settlement(found.headers["x-request-id"]).served == SECOND
        live = edge.live()
        for _ in range(30):
            live = edge.live()
            if all(m["in_flight"] == 0 for m in live["models"].values()):
                break
            await asyncio.sleep(0.1)
        assert all(m["in_flight"] == 0 for m in live["models"].values())


async def test_a_dearer_model_is_held_for_and_it_stays_one_request(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """Its price is what counts, before it is sent and after; one request at once is enough for it."""
    asked = world.model(fallbacks=(SECOND,))
    dear, cheap = world.model(SECOND, prompt=1000, completion=1000), world.model("cheap", prompt=1, completion=1)
    async with engine(good) as two, engine(good) as three:
        endpoints = [endpoint(two.port, TWO, SECOND), endpoint(three.port, "r-3", "cheap")]
        limited = world.level("project", rpm=2, concurrent=1, budget=100_000)
        world.serve(edge, endpoints, [limited], asked, dear)
        for _ in range(2):
            found = await http.post(CHAT, json=chat(max_tokens=10))
            assert (found.status_code, found.headers["x-llmgw-served-model"]) == (200, SECOND), found.text
        assert edge.settlement(found.headers["x-request-id"]).cost == 13 * 1000
        await asyncio.sleep(0.2)
        with edge.client() as client:
            assert client.hmget(world.purse(limited), "s", "h") == [b"26000", b"0"]
        found = await http.post(CHAT, json=chat(max_tokens=10))
        assert (found.status_code, found.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        world.serve(edge, endpoints, [world.level("project", concurrent=1, budget=5000)], asked, dear)
        found = await http.post(CHAT, json=chat(max_tokens=10))
        assert (found.status_code, found.json()["error"]["code"]) == (503, "no_capacity"), found.text
        assert edge.settlement(found.headers["x-request-id"]).hops == (
            f"{MODEL}: no_capacity",
            f"{SECOND}: insufficient_quota",
        )
        assert len(two.calls) == 2
        world.serve(
            edge,
            endpoints,
            [world.level("project", concurrent=1, budget=5000)],
            world.model(fallbacks=(SECOND, "cheap")),
            dear,
            cheap,
        )
        found = await http.post(CHAT, json=chat())
        assert (found.status_code, found.headers["x-llmgw-served-model"]) == (200, "cheap"), found.text
        assert 0 < three.calls[0].json["max_tokens"] == int(found.headers["x-llmgw-max-tokens"])


async def test_who_answers_for_a_spent_budget_is_judged_too(
    edge: EdgeProcess, http: httpx.AsyncClient, keys: Keys
) -> None:
    async with engine(good) as one, engine(good) as there:
        away = external(f"http://127.0.0.1:{there.port}", keys.write(1, "k"))
        priced = world.model(prompt=1000, completion=1000)
        spent = world.level("project", budget=0)
        for in_cluster, status in ((False, 200), (True, 429)):
            world.serve(edge, [endpoint(one.port)], [spent], priced, away, when_spent=NAME, in_cluster=in_cluster)
            wait_for_standing(edge, NAME, [""])
            found = await http.post(CHAT, json=chat())
            assert found.status_code == status, found.text
        assert (len(one.calls), len(there.calls)) == (0, 1)


async def test_a_queue_that_lets_nobody_in(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    over = asyncio.Event()

    async def slow(call: Call) -> None:
        await over.wait()
        await good(call)

    async with engine(slow) as one, engine(good) as two:
        endpoints = (endpoint(one.port, ONE, parallel=1), endpoint(two.port, TWO, SECOND))
        serve(edge, own(fallbacks=(SECOND,)), own(SECOND), endpoints=endpoints, queue_overcommit=1.0)
        first = asyncio.create_task(http.post(CHAT, json=chat()))
        while not one.calls:
            await asyncio.sleep(0.01)
        found = await http.post(CHAT, json=chat(), headers={"x-llmgw-max-wait": "0"})
        over.set()
        assert (found.status_code, found.headers["x-llmgw-fallback"]) == (200, "wait_too_long"), found.text
        assert found.headers["x-llmgw-served-model"] == SECOND
        assert (await first).headers["x-llmgw-served-model"] == MODEL
        again = await http.post(CHAT, json=chat(), headers={"x-llmgw-max-wait": "0"})
        assert again.headers["x-llmgw-served-model"] == MODEL, "the place is free again"
