"""The door of a real edge process, before engines that do as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from gateway.core import snapshot
from llmgw.keys import key_hash
from tests.gateway.edges import MODEL, EdgeProcess, catalog, chat, endpoint, events
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, usage

CHAT = "/v1/chat/completions"
KEYS = {name: f"llmgw_{name * 43}"[:49] for name in ("a", "b", "i", "s")}
"""Of projects of these names: `b` weighs three times as much as `a`; `i` is interactive, `s` batch."""
BANDS = {"a": "normal", "b": "normal", "i": "interactive", "s": "batch"}
WEIGHTS = {"a": 1.0, "b": 3.0, "i": 1.0, "s": 1.0}


def tenancy() -> snapshot.Tenancy:
    return snapshot.Tenancy(
        keys={key_hash(key): snapshot.KeyEntry(f"k-{n}", n, n, band=BANDS[n]) for n, key in KEYS.items()},
        projects={n: snapshot.Scope("o", "t", n, weight=WEIGHTS[n]) for n in KEYS},
    )


def serve(edge: EdgeProcess, *endpoints: snapshot.Endpoint, slo: snapshot.Slo | None = None, **policies: Any) -> None:
    """Of the model that the endpoints are of, which may be one that no test before has taught the edge anything of."""
    name = endpoints[0].model
    model = snapshot.ModelEntry(name, (), "serving", kinds=("chat", "completions", "embeddings"), slo=slo)
    edge.publish(
        tenancy=tenancy(),
        catalog=catalog(**{name: model}),
        endpoints=snapshot.Endpoints(endpoints=endpoints),
        policies=snapshot.Policies(**policies),
    )


def auth(name: str, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}", **{k.replace("_", "-"): v for k, v in headers.items()}}


@pytest.fixture
async def http(edge: EdgeProcess) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=500)
    async with httpx.AsyncClient(base_url=edge.url, timeout=30, verify=False, limits=limits) as client:
        yield client


class Gate:
    """An engine that answers one request for each word."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._free = asyncio.Semaphore(0)

    async def script(self, call: Call) -> None:
        self.seen.append(call.json["messages"][0]["content"])
        await self._free.acquire()
        await call.whole(answer())

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self._free.release()


async def until(what: Callable[[], bool], timeout_s: float = 5) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def said(text: str, **fields: Any) -> dict[str, Any]:
    return chat(**{"messages": [{"role": "user", "content": text}], "max_tokens": 10, **fields})


def waiting(edge: EdgeProcess, model: str = MODEL) -> int:
    return int(edge.live().get("models", {}).get(model, {}).get("waiting", 0))


async def send(http: httpx.AsyncClient, name: str, text: str, **headers: str) -> asyncio.Task[httpx.Response]:
    """Sent, and before the door when this returns."""
    task = asyncio.ensure_future(http.post(CHAT, json=said(text), headers=auth(name, **headers)))
    await asyncio.sleep(0.02)
    return task


async def test_better_bands_pass_and_a_header_only_lowers(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate = Gate()
    async with engine(gate.script) as up:
        serve(edge, endpoint(up.port, parallel=1), queue_overcommit=1)
        tasks = [await send(http, "a", "first")]
        await until(lambda: gate.seen == ["first"])
        tasks.append(await send(http, "s", "batch"))
        tasks.append(await send(http, "s", "still batch", x_llmgw_band="interactive"))
        tasks.append(await send(http, "a", "normal"))
        tasks.append(await send(http, "i", "lowered", x_llmgw_band="Batch"))
        tasks.append(await send(http, "i", "interactive"))
        gate.let(6)
        found = await asyncio.gather(*tasks)
        wrong = await http.post(CHAT, json=said("x"), headers=auth("a", x_llmgw_band="vip"))
    assert gate.seen[:3] == ["first", "interactive", "normal"]
    assert set(gate.seen[3:]) == {"batch", "still batch", "lowered"}
    assert [f.status_code for f in found] == [200] * 6
    assert "x-llmgw-queued-ms" not in found[0].headers
    assert int(found[1].headers["x-llmgw-queued-ms"]) >= 60
    settled = edge.settlement(found[1].headers["x-request-id"])
    assert settled.queued_ms == pytest.approx(int(found[1].headers["x-llmgw-queued-ms"]), abs=1)
    assert edge.settlement(found[0].headers["x-request-id"]).queued_ms is None
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_header")


async def test_projects_share_by_weight(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """1:3, told by the order in which the engine gets what waits of both."""
    gate = Gate()
    async with engine(gate.script) as up:
        serve(edge, endpoint(up.port, model="new-8b", parallel=4), queue_limit=1000)

        def one(name: str) -> asyncio.Task[httpx.Response]:
            return asyncio.ensure_future(http.post(CHAT, json=said(name, model="new-8b"), headers=auth(name)))

        first = [one("a") for _ in range(5)]
        await until(lambda: len(gate.seen) == 5)
        tasks = [one(name) for name in "ab" * 100]
        await until(lambda: waiting(edge, "new-8b") == 200, 20)
        gate.let(1000)
        assert {t.status_code for t in await asyncio.gather(*first, *tasks)} == {200}
    got = gate.seen[5:125]
    assert got.count("a") / len(got) == pytest.approx(0.25, rel=0.1), got


async def test_a_flood_does_not_push_out_the_others(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate = Gate()
    async with engine(gate.script) as up:
        serve(edge, endpoint(up.port, parallel=1), queue_overcommit=1, queue_limit=6)
        tasks = [await send(http, "a", "first")]
        tasks += [await send(http, "a", f"flood {n}") for n in range(6)]
        full = await http.post(CHAT, json=said("one more"), headers=auth("a"))
        quiet = await send(http, "b", "quiet")
        put_out = await asyncio.wait_for(tasks[-1], 2)
        gate.let(20)
        assert (await quiet).status_code == 200
        assert [r.status_code for r in await asyncio.gather(*tasks[:-1])] == [200] * 6
    assert gate.seen[1] in ("flood 0", "quiet")
    assert gate.seen.index("quiet") <= 2, "it does not wait for the flood"
    for refused in (full, put_out):
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["x-llmgw-queue-position"]) in (6, 7)
        assert int(refused.headers["x-llmgw-eta-seconds"]) >= 1
        assert int(refused.headers["retry-after"]) >= 1
    assert "others had fewer" in put_out.json()["error"]["message"]
    settled = edge.settlement(full.headers["x-request-id"])
    assert (settled.outcome, settled.status, settled.code, settled.replica) == ("refused", 503, "queue_full", "")


async def test_a_full_queue_falls_over_to_another_model(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate = Gate()

    async def good(call: Call) -> None:
        await call.whole(answer())

    async with engine(gate.script) as up, engine(good) as other:
        main = snapshot.ModelEntry(MODEL, (), "serving", fallbacks=("spare",))
        edge.publish(
            tenancy=tenancy(),
            catalog=snapshot.Catalog(models={MODEL: main, "spare": snapshot.ModelEntry("spare", (), "serving")}),
            endpoints=snapshot.Endpoints(
                endpoints=(endpoint(up.port, parallel=1), endpoint(other.port, "r-2", "spare"))
            ),
            policies=snapshot.Policies(queue_overcommit=1, queue_limit=1),
        )
        first = await send(http, "a", "first")
        await until(lambda: gate.seen == ["first"])
        second = await send(http, "a", "second")
        await until(lambda: waiting(edge) == 1)
        found = await http.post(CHAT, json=said("third"), headers=auth("a"))
        gate.let(2)
        assert [(await t).status_code for t in (first, second)] == [200, 200]
    assert (found.status_code, found.headers["x-llmgw-served-model"]) == (200, "spare")
    assert found.headers["x-llmgw-fallback"] == "queue_full"
    assert gate.seen == ["first", "second"]


async def test_who_leaves_while_waiting_frees_the_place_at_once(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate, began = Gate(), time.time()
    async with engine(gate.script) as up:
        serve(edge, endpoint(up.port, parallel=1), queue_overcommit=1, queue_limit=2)
        first = await send(http, "a", "first")
        await until(lambda: gate.seen == ["first"])
        leaves = [await send(http, "a", f"leaves {n}") for n in range(2)]
        await until(lambda: waiting(edge) == 2)
        for task in leaves:
            task.cancel()
        stays = [await send(http, "a", f"stays {n}") for n in range(2)]
        gate.let(3)
        assert [(await task).status_code for task in (first, *stays)] == [200] * 3
        books = [edge.settlement(i) for i, (intent, _) in edge.books().items() if intent.at >= began]
        outcomes = [s for s in books if s.outcome == "client_left"]
    assert gate.seen == ["first", "stays 0", "stays 1"], "who left never reached the engine"
    assert len(outcomes) == 2
    assert all(s.queued_ms is None and s.replica == "" for s in outcomes)


async def test_a_stream_that_waits_is_kept_open_and_told_its_place(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    go = asyncio.Event()

    async def script(call: Call) -> None:
        if not call.json.get("stream"):
            await go.wait()
            await call.whole(answer())
        else:
            await call.stream(delta("ok"), finish(), usage(), DONE)

    async with engine(script) as up:
        serve(edge, endpoint(up.port, parallel=1), queue_overcommit=1, keepalive_s=0.1)
        first, second = await send(http, "a", "first"), await send(http, "a", "second")
        async with http.stream("POST", CHAT, json=said("third", stream=True), headers=auth("a")) as found:
            assert found.status_code == 200
            assert found.headers["x-llmgw-queue-position"] == "2"
            assert int(found.headers["x-llmgw-eta-seconds"]) >= 1
            assert "x-llmgw-replica" not in found.headers
            pieces = found.aiter_bytes()
            assert (await anext(pieces)).startswith(b": keep-alive")
            go.set()
            body = b"".join([piece async for piece in pieces])
        assert events(body)[-1] == "[DONE]"
        assert [(await t).status_code for t in (first, second)] == [200, 200]
        go.clear()
        held = await send(http, "a", "held")
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(0.3), http.stream("POST", CHAT, json=said("x", stream=True), headers=auth("a")):
                await asyncio.sleep(5)
    held.cancel()


async def test_who_may_not_wait_so_long_is_told_when(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """The expected wait is refused before it is waited, and it is true: engine and queue are known."""

    async def script(call: Call) -> None:
        await asyncio.sleep(0.25)
        await call.whole(answer())

    async with engine(script) as up:
        serve(edge, endpoint(up.port, model="slow-8b", parallel=1), queue_overcommit=1)
        one = said("x", model="slow-8b")
        for _ in range(5):
            assert (await http.post(CHAT, json=one, headers=auth("a"))).status_code == 200
        tasks = [asyncio.ensure_future(http.post(CHAT, json=one, headers=auth("a"))) for _ in range(9)]
        await asyncio.sleep(0.15)
        began = time.monotonic()
        refused = await http.post(CHAT, json=one, headers=auth("a", x_llmgw_max_wait="0.5"))
        assert time.monotonic() - began < 0.2
        assert refused.json()["error"]["code"] == "wait_too_long"
        await asyncio.gather(*tasks)
        took = time.monotonic() - began
        assert float(refused.headers["x-llmgw-eta-seconds"]) == pytest.approx(took, abs=1.0)
        assert int(refused.headers["retry-after"]) == pytest.approx(took - 0.5, abs=1.0)
        held = asyncio.ensure_future(http.post(CHAT, json=one, headers=auth("a")))
        await asyncio.sleep(0.05)
        none = await http.post(CHAT, json=one, headers=auth("a", x_llmgw_max_wait="0"))
        assert none.status_code == 503
        await held
        assert (await http.post(CHAT, json=one, headers=auth("a", x_llmgw_max_wait="0"))).status_code == 200
        odd = await http.post(CHAT, json=one, headers=auth("a", x_llmgw_max_wait="soon"))
        assert odd.status_code == 400


async def test_nobody_waits_longer_than_the_setting(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate = Gate()
    async with engine(gate.script) as up:
        serve(edge, endpoint(up.port, parallel=1), queue_overcommit=1, queue_max_wait_s=0.3, keepalive_s=0.1)
        first = await send(http, "a", "first")
        whole = await http.post(CHAT, json=said("x"), headers=auth("i"))
        stream = await http.post(CHAT, json=said("x", stream=True), headers=auth("a"))
        gate.let()
        assert (await first).status_code == 200
    assert (whole.status_code, whole.json()["error"]["code"]) == (503, "wait_too_long")
    assert stream.status_code == 200, "it was open already: the error is in-band"
    assert events(stream.content)[-1]["error"]["code"] == "wait_too_long"


async def test_a_replica_that_comes_and_goes(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    one_gate, two_gate = Gate(), Gate()
    async with engine(one_gate.script) as one, engine(two_gate.script) as two:
        first, second = endpoint(one.port, "r-1", parallel=1), endpoint(two.port, "r-2", parallel=1)
        serve(edge, first, queue_overcommit=1)
        tasks = [await send(http, "a", str(n)) for n in range(3)]
        edge.publish(endpoints=snapshot.Endpoints(endpoints=(first, second)))
        await until(lambda: len(two_gate.seen) == 1, 1.0)
        edge.publish(endpoints=snapshot.Endpoints())
        gone = await asyncio.wait_for(tasks[2], 2)
        one_gate.let()
        two_gate.let()
        assert [(await t).status_code for t in tasks[:2]] == [200, 200]
    assert gone.status_code == 503


async def test_a_model_past_its_promise_lets_the_lower_bands_wait(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate = Gate()

    async def script(call: Call) -> None:
        if call.json.get("stream"):
            await asyncio.sleep(0.03)
            await call.stream(delta("o"), delta("k"), finish(), usage(), DONE)
        else:
            await gate.script(call)

    async with engine(script) as up:
        serve(edge, endpoint(up.port, parallel=10), queue_overcommit=1, slo=snapshot.Slo(ttft_p99_s=0.015))
        streams = [http.post(CHAT, json=said("s", stream=True), headers=auth("i")) for _ in range(20)]
        assert all(r.status_code == 200 for r in await asyncio.gather(*streams))
        await asyncio.sleep(1.2)
        tasks = [await send(http, "i", "interactive")]
        tasks += [await send(http, "s", f"batch {n}") for n in range(2)]
        tasks += [await send(http, "a", f"normal {n}") for n in range(6)]
        await asyncio.sleep(0.05)
        seen = list(gate.seen)
        gate.let(20)
        await asyncio.gather(*tasks)
    assert seen == ["interactive", *(f"normal {n}" for n in range(4))], "batch waits, normal has half of the room"


@pytest.mark.slow
async def test_an_edge_that_stops_lets_nobody_hang(own_edge: EdgeProcess) -> None:
    gate = Gate()
    own_edge.start()
    async with engine(gate.script) as up, httpx.AsyncClient(base_url=own_edge.url, timeout=20) as http:
        serve(own_edge, endpoint(up.port, parallel=1), queue_overcommit=1)
        tasks = [await send(http, "a", str(n)) for n in range(3)]
        await until(lambda: len(gate.seen) == 1)
        code = await asyncio.to_thread(own_edge.kill, 15)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert code == 0
        assert all(isinstance(f, httpx.Response) and f.status_code == 503 for f in found)
        own_edge.start()
        gate.let(5)
        assert (await http.post(CHAT, json=said("again"), headers=auth("a"))).status_code == 200
    assert gate.seen == ["0", "again"]
