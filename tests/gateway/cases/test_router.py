"""Engines that fail, hang, come back: each by the number of its case."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmgw import metrics, series
from tests.gateway.edges import EdgeProcess, chat, content, endpoint, events
from tests.gateway.providers import NAME, Keys, external, serve
from tests.gateway.upstreams import DONE, HEAD, Call, answer, delta, engine, finish, usage

CHAT = "/v1/chat/completions"
END = finish() + usage() + DONE
ONE, TWO = "r-0000000001", "r-0000000002"


async def good(call: Call) -> None:
    await (call.stream(delta("ok"), END) if call.json.get("stream") else call.whole(answer()))


def _key(call: Call) -> str:
    return call.headers["authorization"].removeprefix("Bearer ")


async def test_b051_retry_after_of_providers(edge: EdgeProcess, http: httpx.AsyncClient, tmp_path: Path) -> None:
    said: list[str] = []
    keys = Keys(tmp_path)

    async def script(call: Call) -> None:
        if _key(call) == "busy":
            await call.whole({"error": {"message": "slow down, org-abcdef123456"}}, 429, *said)
        else:
            await good(call)

    cases: list[tuple[list[str], float]] = [
        (["retry-after: 30"], 30),
        (["retry-after: Wed, 21 Oct 2026 07:28:00 GMT", "date: Wed, 21 Oct 2026 07:27:30 GMT"], 30),
        (["retry-after-ms: 1500"], 2),
        (["retry-after: -5"], 5),
        (["retry-after: 9999999"], 300),
        (["retry-after: soon"], 5),
        ([], 5),
    ]
    async with engine(script) as there:
        url, busy, free = f"http://127.0.0.1:{there.port}", keys.write(1, "busy"), keys.write(2, "free")
        names = [f"case-{number}" for number, _ in enumerate(cases)]
        both = [external(url, busy, free, weights=(1000, 0.001), name=name) for name in names]
        serve(edge, *both, *[external(url, busy, name=f"{name}-alone") for name in names])
        for name, (headers, wait_s) in zip(names, cases, strict=True):
            said[:] = headers
            before = len(there.calls)
            found = await http.post(CHAT, json=chat(model=name))
            assert (found.status_code, found.headers["x-llmgw-replica"]) == (200, f"external:{name}#2")
            assert [_key(c) for c in there.calls[before:]] == ["busy", "free"], "the same request goes to another key"
            found = await http.post(CHAT, json=chat(model=name))
            assert [_key(c) for c in there.calls[before:]] == ["busy", "free", "free"], "it rests"
            found = await http.post(CHAT, json=chat(model=f"{name}-alone"))
            assert (found.status_code, found.json()["error"]["code"]) == (429, "provider_busy")
            assert "org-" not in found.text
            assert wait_s - 2 <= int(found.headers["retry-after"]) <= wait_s, headers
            asked = len(there.calls)
            assert (await http.post(CHAT, json=chat(model=f"{name}-alone"))).status_code == 429
            assert len(there.calls) == asked, "nothing is asked while all keys wait"
        row = edge.settlement(found.headers["x-request-id"])
        assert (row.status, row.code, row.outcome) == (429, "provider_busy", "refused")


async def test_b051_a_429_moves_no_breaker_and_its_pause_ends(
    edge: EdgeProcess, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    script = ["500", "500", "429", "500", "ok"]

    async def provider(call: Call) -> None:
        match script.pop(0):
            case "429":
                await call.whole({"error": {"message": "busy"}}, 429, "retry-after-ms: 300")
            case "500":
                await call.whole({"error": {"message": "broken"}}, 500)
            case _:
                await good(call)

    async with engine(provider) as there:
        serve(edge, external(f"http://127.0.0.1:{there.port}", keys.write(1, "one")), retries=0)
        assert [(await http.post(CHAT, json=chat(model=NAME))).status_code for _ in range(3)] == [502, 502, 429]
        await asyncio.sleep(0.35)
        assert (await http.post(CHAT, json=chat(model=NAME))).status_code == 502
        await asyncio.sleep(1.2)
        assert _breakers(edge) == 1, "the third failure opened it: the 429 between cleared nothing"


def _breakers(edge: EdgeProcess) -> float:
    with edge.client() as client:
        for key in client.scan_iter(f"{metrics.PREFIX}edge-*"):
            for name, labels, value in metrics.decode(client.get(key) or b"").gauges:
                if name == series.BREAKERS.name and labels == [NAME]:
                    return value
    return 0


async def test_b051_an_engine_that_asks_for_a_pause_gets_it(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def busy(call: Call) -> None:
        await call.whole({"error": {"message": "queue full"}}, 429, "retry-after: 20")

    async with engine(busy) as one, engine(good) as two:
        edge.serve(endpoint(one.port, ONE), endpoint(two.port, TWO))
        for _ in range(8):
            assert (await http.post(CHAT, json=chat())).status_code == 200
        assert (len(one.calls), len(two.calls)) == (1, 8)
    async with engine(busy) as one:
        edge.serve(endpoint(one.port, ONE))
        found = await http.post(CHAT, json=chat())
        assert (found.status_code, found.json()["error"]["code"]) == (503, "engine_busy")
        assert 18 <= int(found.headers["retry-after"]) <= 20
        assert len(one.calls) == 1, "nothing is asked during the pause"


LLAMACPP = (
    b"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing %d\nllamacpp:requests_deferred %d\n"
)


async def test_b059_what_engines_say_of_themselves_counts(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def spread(count: int = 6) -> tuple[int, int]:
        before = len(one.calls), len(two.calls)
        for _ in range(count):
            assert (await http.post(CHAT, json=chat())).status_code == 200
        return len(one.calls) - before[0], len(two.calls) - before[1]

    async with engine(good) as one, engine(good) as two:
        one.metrics, two.metrics = LLAMACPP % (4, 9), LLAMACPP % (0, 0)
        edge.serve(endpoint(one.port, ONE, parallel=4), endpoint(two.port, TWO, parallel=4))
        await asyncio.sleep(1.3)
        assert await spread() == (0, 6), "requests of others are load"
        one.metrics = None
        await asyncio.sleep(1.3)
        assert min(await spread()) >= 2, "unknown: our own counts judge"


async def test_b059_an_engine_whose_metrics_hang_delays_nobody(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    over = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readuntil(b"\r\n")
        if b"/metrics" in first:
            await over.wait()
        else:
            body = json.dumps(answer()).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with engine(good) as two:
        two.metrics = LLAMACPP % (0, 0)
        edge.serve(endpoint(server.sockets[0].getsockname()[1], ONE), endpoint(two.port, TWO))
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            sent = time.monotonic()
            assert (await http.post(CHAT, json=chat())).status_code == 200
            assert time.monotonic() - sent < 0.5
            await asyncio.sleep(0.05)
    over.set()
    server.close()
    await asyncio.sleep(0.01)


async def test_edges_know_of_each_other(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """What another process has in flight is load; one that is gone has nothing in flight."""
    async with engine(good) as one, engine(good) as two:
        edge.serve(endpoint(one.port, ONE, parallel=4), endpoint(two.port, TWO, parallel=4))
        with edge.client() as client:
            for number in range(14):
                client.hset("llmgw:edges", "another", json.dumps({"n": number, "in_flight": {ONE: 6}}))
                await asyncio.sleep(0.1)
            for _ in range(6):
                assert (await http.post(CHAT, json=chat())).headers["x-llmgw-replica"] == TWO
            own = [k for k in client.hkeys("llmgw:edges") if k != b"another"]
            assert len(own) == 1
            client.hdel("llmgw:edges", "another")
            await asyncio.sleep(1.3)
            assert ONE in {(await http.post(CHAT, json=chat())).headers["x-llmgw-replica"] for _ in range(6)}


LONG = "The river takes the old road to the sea. " * 40


def talk(*turns: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return chat(messages=[{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)])


async def test_a_text_returns_to_where_it_was_read(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(good) as one, engine(good) as two:
        edge.serve(endpoint(one.port, ONE, parallel=4), endpoint(two.port, TWO, parallel=4))
        texts = {name: f"{name}: {LONG}" for name in "abcdefgh"}
        first = {n: (await http.post(CHAT, json=talk(t))).headers["x-llmgw-replica"] for n, t in texts.items()}
        assert set(first.values()) == {ONE, TWO}, "what nobody has read is spread"
        for name, text in texts.items():
            found = await http.post(CHAT, json=talk(text, "yes", "and then?"))
            assert found.headers["x-llmgw-replica"] == first[name]
            assert "% of the prompt is cached there" in found.headers["x-llmgw-route"]
    assert edge.settlement(found.headers["x-request-id"]).route == found.headers["x-llmgw-route"]


async def test_a_session_stays_and_moves_with_its_replica(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def home(session: str, **fields: Any) -> str:
        headers = {"x-session-id": session} if not fields else {}
        found = await http.post(CHAT, json=chat(**fields), headers=headers)
        assert fields or "session" in found.headers["x-llmgw-route"]
        return found.headers["x-llmgw-replica"]

    async with engine(good) as one, engine(good) as two, engine(good) as three:
        all_three = (endpoint(one.port, ONE), endpoint(two.port, TWO), endpoint(three.port, "r-3"))
        edge.serve(*all_three)
        homes = {f"s{i}": await home(f"s{i}") for i in range(12)}
        assert len(set(homes.values())) == 3
        assert {s: await home(s) for s in homes} == homes
        assert len({await home("", user="somebody") for _ in range(4)}) == 1
        edge.serve(*all_three[:2])
        after = {s: await home(s) for s in homes}
        assert all(after[s] == homes[s] for s in homes if homes[s] != "r-3"), "only the lost one's sessions move"


@pytest.mark.parametrize("policy", ["round_robin", "least_load", "prefix", "predicted"])
async def test_each_policy(edge: EdgeProcess, http: httpx.AsyncClient, policy: str) -> None:
    async with engine(good) as one, engine(good) as two:
        edge.serve(endpoint(one.port, ONE), endpoint(two.port, TWO), route_by=policy)
        found = [await http.post(CHAT, json=talk(LONG)) for _ in range(4)]
    where = {f.headers["x-llmgw-replica"] for f in found}
    assert len(where) == (1 if policy in ("prefix", "predicted") else 2)


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_b053_the_callers_errors_move_no_breaker(edge: EdgeProcess, http: httpx.AsyncClient, status: int) -> None:
    words = {"code": status, "message": "the prompt is too long", "type": "exceed_context_size_error", "n_ctx": 2048}

    async def script(call: Call) -> None:
        await (call.whole({"error": words}, status) if call.number <= 20 else call.whole(answer()))

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        for stream in (False, True) * 10:
            found = await http.post(CHAT, json=chat(stream=stream))
            assert found.status_code == status
            said = found.json()["error"]
            assert said["code"] == "context_length_exceeded"
            assert said["message"] == words["message"]
            assert said["n_ctx"] == 2048
        assert len(up.calls) == 20, "passed on once"
        assert (await http.post(CHAT, json=chat())).status_code == 200
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.status, row.code) == ("refused", status, "context_length_exceeded")


async def test_b053_a_key_that_the_engine_refuses_is_our_fault(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.whole({"error": {"message": "Invalid API Key"}}, 401)

    async with engine(script) as up:
        edge.serve(endpoint(up.port), retries=0)
        found = await http.post(CHAT, json=chat())
    assert found.status_code == 502
    assert found.json()["error"]["code"] == "engine_unauthorized"


async def refused(call: Call) -> None:
    raise AssertionError("nobody listens here")


async def status_500(call: Call) -> None:
    await call.whole({"error": {"message": "out of memory"}}, 500)


async def head_only(call: Call) -> None:
    await call.raw(HEAD)
    call.close()


async def role_only(call: Call) -> None:
    await call.stream(delta(role="assistant", content=None), end=False)
    await asyncio.sleep(0.02)
    call.reset()


async def silent(call: Call) -> None:
    await asyncio.sleep(20)


def prefer_first(first: int, second: int) -> tuple[Any, Any]:
    """The second replica counts as busier, so that the first is asked first... both idle: weights decide nothing."""
    return endpoint(first, ONE), endpoint(second, TWO)


@pytest.mark.parametrize("bad", [status_500, head_only, role_only, silent, None])
async def test_b054_served_by_the_other_replica(edge: EdgeProcess, http: httpx.AsyncClient, bad: Any) -> None:
    async with engine(bad or refused) as one, engine(good) as two:
        port = one.port if bad is not None else _closed_port()
        edge.serve(*prefer_first(port, two.port), header_timeout_s=0.3)
        rows = []
        for _ in range(4):
            found = await http.post(CHAT, json=chat(stream=True))
            assert content(found.content) == "ok"
            assert events(found.content)[-1] == "[DONE]"
            assert b"error" not in found.content
            rows.append(edge.settlement(found.headers["x-request-id"]))
    assert {r.replica for r in rows} == {TWO}
    assert {(r.completion_tokens, r.outcome) for r in rows} == {(2, "ok")}
    assert sum(r.attempts for r in rows) > len(rows), "it was never asked"
    assert max(r.attempts for r in rows) == 2


def _closed_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as s:
        return int(s.getsockname()[1])


async def test_b054_attempts_are_bounded(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(status_500) as one, engine(status_500) as two:
        edge.serve(*prefer_first(one.port, two.port), retries=2)
        found = await http.post(CHAT, json=chat(stream=True))
        assert found.status_code == 502
        assert len(one.calls) + len(two.calls) == 3
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.attempts, row.outcome, row.code) == (3, "engine_failed", "500")


async def test_b054_after_content_nothing_is_repeated(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("Hel"), end=False)
        await asyncio.sleep(0.05)
        call.reset()

    async with engine(script) as one, engine(script) as two:
        edge.serve(*prefer_first(one.port, two.port))
        found = await http.post(CHAT, json=chat(stream=True))
        assert len(one.calls) + len(two.calls) == 1
    assert events(found.content)[-1]["error"]["code"] == "engine_failed"


async def test_b055_a_connection_that_the_engine_closed(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.whole(answer())
        if call.number == 1:
            await asyncio.sleep(0.2)
            call.close()

    async with engine(script) as up:
        edge.serve(endpoint(up.port), retries=0)
        assert (await http.post(CHAT, json=chat())).status_code == 200
        await asyncio.sleep(0.3)
        assert (await http.post(CHAT, json=chat())).status_code == 200


async def test_b055_the_engine_closes_just_as_the_request_leaves(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        if call.number == 2:
            call.reset()
        else:
            await call.whole(answer())

    async with engine(script) as up:
        edge.serve(endpoint(up.port), retries=0)
        for _ in range(2):
            found = await http.post(CHAT, json=chat())
            assert found.status_code == 200
        assert up.connections == 2
    assert edge.settlement(found.headers["x-request-id"]).attempts == 2


async def test_b055_another_replica_on_the_same_port(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(good) as up:
        edge.serve(endpoint(up.port, ONE))
        await http.post(CHAT, json=chat())
        first = up.calls[0].headers["authorization"]
        assert up.open == 1
        edge.serve(endpoint(up.port, TWO))
        await http.post(CHAT, json=chat())
        assert up.connections == 2, "the old replica's connection is not used for the new one"
        assert up.calls[1].headers["authorization"] != first
        await asyncio.sleep(0.05)
        assert up.open == 1


async def test_b056_each_phase_has_its_limit(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("a"), end=False)
        await silent(call)

    async with engine(silent) as one, engine(good) as two, engine(script) as three:
        edge.serve(*prefer_first(one.port, two.port), header_timeout_s=0.3)
        for _ in range(2):
            began = time.monotonic()
            assert content((await http.post(CHAT, json=chat(stream=True))).content) == "ok"
            assert time.monotonic() - began < 1
        edge.serve(endpoint(three.port, "r-3"), idle_timeout_s=0.3)
        found = await http.post(CHAT, json=chat(stream=True))
        assert events(found.content)[-1]["error"]["code"] == "engine_timeout"
        assert edge.settlement(found.headers["x-request-id"]).outcome == "timed_out"
        edge.serve(endpoint(one.port, "r-4"), generation_timeout_s=0.3, retries=0)
        assert (await http.post(CHAT, json=chat())).status_code == 504


async def test_b056_an_engine_that_does_not_take_the_request(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    over = asyncio.Event()

    async def stuck(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await over.wait()
        writer.transport.abort()

    server = await asyncio.start_server(stuck, "127.0.0.1", 0, limit=1024)
    edge.serve(endpoint(server.sockets[0].getsockname()[1]), idle_timeout_s=0.4, retries=0)
    began = time.monotonic()
    found = await http.post(CHAT, json=chat(messages=[{"role": "user", "content": "x" * 8_000_000}]))
    assert found.status_code == 504
    assert time.monotonic() - began < 3
    over.set()
    server.close()
    await asyncio.sleep(0.01)


async def test_b057_headers(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        body = gzip.compress(json.dumps(answer()).encode())
        hops = (
            "content-encoding: gzip",
            "connection: keep-alive, X-Hop",
            "X-Hop: 1",
            "set-cookie: engine=1",
            "server: u",
        )
        await call.whole(body, 200, *hops)

    sent = {"cookie": "sessionid=S", "x-forwarded-for": "1.2.3.4", "x-api-key": "K", "x-client-request-id": "mine"}
    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(), headers=sent)
        got = up.calls[0].headers
    assert found.json()["choices"][0]["message"]["content"] == "ok"
    assert "content-encoding" not in found.headers
    assert int(found.headers["content-length"]) == len(found.content)
    assert not {"x-hop", "set-cookie", "server", "transfer-encoding"} & set(found.headers)
    assert found.headers["x-client-request-id"] == "mine"
    assert got["host"] == f"127.0.0.1:{up.port}"
    assert got["authorization"] != f"Bearer {sent['x-api-key']}"
    assert not {"cookie", "x-api-key", "x-forwarded-for"} & set(got)
    assert len(got["authorization"]) == len("Bearer ") + 64


async def test_least_load_and_draining(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        await gate.wait()
        await call.whole(answer())

    async with engine(script) as one, engine(script) as two, engine(script) as three:
        edge.serve(
            endpoint(one.port, ONE, parallel=1),
            endpoint(two.port, TWO, parallel=3),
            endpoint(three.port, "r-3", draining=True),
            queue_overcommit=10,
        )
        tasks = [asyncio.ensure_future(http.post(CHAT, json=chat())) for _ in range(8)]
        while len(one.calls) + len(two.calls) < 8:
            await asyncio.sleep(0.01)
        gate.set()
        found = await asyncio.gather(*tasks)
    assert (len(one.calls), len(two.calls), len(three.calls)) == (2, 6, 0)
    assert {f.headers["x-llmgw-route"] for f in found} == {"the least busy of 2 replicas"}


async def test_all_draining_is_said(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(good) as up:
        edge.serve(endpoint(up.port, draining=True))
        found = await http.post(CHAT, json=chat())
    assert found.status_code == 503
    assert "being drained" in found.json()["error"]["message"]
    assert int(found.headers["retry-after"]) >= 1
