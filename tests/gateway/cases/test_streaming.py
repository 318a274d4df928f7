"""Streams as engines really send them: faults that other gateways have had, each by the number of its case."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from tests.gateway.edges import AUTH, EdgeProcess, chat, content, endpoint, events
from tests.gateway.upstreams import CHUNK, DONE, HEAD, Call, answer, delta, engine, finish, sse, usage

CHAT = "/v1/chat/completions"
END = finish() + usage() + DONE


async def streamed(http: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await http.post(CHAT, json=chat(stream=True, **fields))


async def test_b002_data_over_several_lines(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    first = json.dumps({**CHUNK, "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": None}]})
    head, tail = first.split(', "choices"')
    split = f'event: message\ndata: {head},\ndata: "choices"{tail}\n\n'

    async def script(call: Call) -> None:
        await call.stream(split, finish() + usage() + DONE)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert content(found.content) == "ok"
    assert split.encode() in found.content
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (11, 2, False)


async def test_b004_comments_stay_comments(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.raw(HEAD)
        await call.piece(": UPSTREAM WORKING\n\n")
        await call.piece(":\n\n: still here\n\n")
        await asyncio.sleep(0.15)
        await call.piece(delta("ok"))
        await call.piece(":ping\n" + finish())
        await call.piece(usage() + DONE)
        await call.raw(b"0\r\n\r\n")

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert b"data: :" not in found.content
    assert content(found.content) == "ok"
    assert events(found.content)[-1] == "[DONE]"
    row = edge.settlement(found.headers["x-request-id"])
    assert row.ttft_ms is not None
    assert row.ttft_ms >= 150, "a comment is no first token"


@pytest.mark.parametrize("every_byte", [False, True])
async def test_b005_characters_cut_in_two(edge: EdgeProcess, http: httpx.AsyncClient, every_byte: bool) -> None:
    chunk = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "你🌍"}, "finish_reason": None}]}
    text = sse(json.dumps(chunk, ensure_ascii=False)).encode()
    at = text.index("你".encode())
    cuts = [text[: at + 1], text[at + 1 : at + 5], text[at + 5 : at + 6], text[at + 6 :], END.encode()]
    pieces = [bytes([b]) for b in b"".join(cuts)] if every_byte else cuts

    async def script(call: Call) -> None:
        await call.stream(*pieces)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert content(found.content) == "你🌍"
    assert "�" not in found.text
    assert text in found.content


async def test_b006_usage_in_an_event_without_choices(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    opening = sse({**CHUNK, "choices": [], "prompt_filter_results": []})

    async def script(call: Call) -> None:
        await call.stream(opening, delta("ok"), finish(), usage(), DONE)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http, stream_options={"include_usage": True})
    said = events(found.content)
    assert said[-1] == "[DONE]"
    assert said[-2]["choices"] == []
    assert said[-2]["usage"]["total_tokens"] == 13
    assert sum("usage" in e for e in said[:-1]) == 1
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.prompt_tokens, row.completion_tokens) == (11, 2)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, False),
        ({"stream_options": None}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": True, "continuous_usage_stats": False}}, True),
        ({"stream_options": {"other": [1, {"a": "}"}]}}, False),
    ],
)
async def test_b007_usage_for_those_who_asked(
    edge: EdgeProcess, http: httpx.AsyncClient, options: dict[str, Any], asked: bool
) -> None:
    async def script(call: Call) -> None:
        wants = (call.json.get("stream_options") or {}).get("include_usage") is True
        await call.stream(delta("ok") + finish() + (usage() if wants else "") + DONE)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http, **options)
        sent = up.calls[0].json["stream_options"]
    assert sent == {**(options.get("stream_options") or {}), "include_usage": True}
    counted = [e for e in events(found.content)[:-1] if "usage" in e]
    assert [e["choices"] for e in counted] == ([[]] if asked else [])
    assert all(e["choices"] for e in events(found.content)[:-1] if "usage" not in e)
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (11, 2, False)


async def test_b007_null_usage_in_every_chunk_is_not_shown(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        chunk = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": None}], "usage": None}
        await call.stream(sse(chunk), sse(chunk), END)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert b"usage" not in found.content
    assert content(found.content) == "okok"


ERROR = sse({"error": {"message": "engine overloaded at 10.0.0.7:8101", "type": "server_error", "code": 503}})


async def test_b010_an_error_before_anything_is_retried(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await (call.stream(ERROR, DONE) if call.number == 1 else call.stream(delta("ok"), END))

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert content(found.content) == "ok"
    assert edge.settlement(found.headers["x-request-id"]).attempts == 2


async def test_b010_else_it_is_a_real_status(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.stream(ERROR, DONE)

    async with engine(script) as up:
        edge.serve(endpoint(up.port), retries=0)
        found = await streamed(http)
    assert found.status_code == 502
    assert "overloaded" in found.json()["error"]["message"]
    assert "10.0.0.7" not in found.text
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.code) == ("engine_failed", "503")


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ('event: error\ndata: {"error":{"message":"boom","code":429}}\n\n', "429"),
        ('{\n  "error": {\n    "code": 503,\n    "message": "high demand at http://10.0.0.7:1/x"\n  }\n}\n', "503"),
        ("", "engine_failed"),
    ],
)
async def test_b010_an_error_in_the_middle(edge: EdgeProcess, http: httpx.AsyncClient, last: str, code: str) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("Hel"), end=False)
        await asyncio.sleep(0.05)
        if last:
            await call.piece(last)
        await asyncio.sleep(0.05)
        call.close()

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
        assert len(up.calls) == 1, "tokens that the client has seen are not made again"
    said = events(found.content)
    assert content(found.content) == "Hel"
    assert set(said[-1]) == {"error"}
    assert said[-1]["error"]["code"] == code
    assert b"10.0.0.7" not in found.content
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.code, row.status, row.estimated) == ("engine_failed", code, 200, True)
    assert row.completion_tokens == 1


async def test_b010_an_error_key_beside_choices_is_none(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        odd = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "error"}, "finish_reason": None}], "error": "x"}
        await call.stream(sse(odd), sse(odd), END)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert content(found.content) == "errorerror"
    assert edge.settlement(found.headers["x-request-id"]).outcome == "ok"


async def leave(edge: EdgeProcess, http: httpx.AsyncClient, up: Any, after: float, **fields: Any) -> Any:
    before = set(edge.books())
    task = asyncio.ensure_future(http.post(CHAT, json=chat(**fields)))
    while not up.calls:
        await asyncio.sleep(0.01)
    await asyncio.sleep(after)
    task.cancel()
    began = time.monotonic()
    await asyncio.wait_for(up.calls[0].gone.wait(), 2)
    assert time.monotonic() - began < 1
    return edge.last(before=before)


async def test_b011_a_client_that_leaves_a_stream(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.raw(HEAD)
        for _ in range(100):
            await call.piece(delta("x"))
            await asyncio.sleep(0.1)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        row = await leave(edge, http, up, 0.25, stream=True, model="helper")
    assert (row.outcome, row.status) == ("client_left", 200)
    assert 2 <= row.completion_tokens <= 4
    assert row.prompt_tokens
    assert row.estimated


@pytest.mark.parametrize("stream", [False, True])
async def test_b011_a_client_that_leaves_before_the_first_token(
    edge: EdgeProcess, http: httpx.AsyncClient, stream: bool
) -> None:
    async def script(call: Call) -> None:
        await asyncio.sleep(20)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        row = await leave(edge, http, up, 0.2, stream=stream)
        assert (row.outcome, row.status, row.completion_tokens) == ("client_left", 499, 0)
        assert row.prompt_tokens
        await asyncio.sleep(1.1)  # live figures are pushed each second
        assert edge.live()["models"]["orchid-8b"]["in_flight"] == 0


async def test_b011_leaving_is_no_fault_of_the_replica(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """Its breaker, which three failures would open, stays shut."""

    async def script(call: Call) -> None:
        if call.number > 5:
            await call.whole(answer())
        else:
            await asyncio.sleep(20)

    async with engine(script) as up:
        edge.serve(endpoint(up.port, "r-left"))
        for gone in range(1, 6):
            task = asyncio.ensure_future(http.post(CHAT, json=chat()))
            while len(up.calls) < gone:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait_for(up.calls[gone - 1].gone.wait(), 2)
        found = await http.post(CHAT, json=chat())
        assert found.status_code == 200
        assert found.headers["x-llmgw-route"] == "the only replica"
        edge.serve(endpoint(up.port, "r-left"), endpoint(up.port, "r-other"))
        routes = [(await http.post(CHAT, json=chat())).headers["x-llmgw-route"] for _ in range(3)]
    assert not [route for route in routes if "failed" in route or "avoided" in route], routes


async def test_b012_an_event_of_3_mib(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    big = delta("x" * 3 * 1024 * 1024)

    async def script(call: Call) -> None:
        await call.stream(delta("a"), big, END)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        before = edge.memory_bytes()
        found = await streamed(http)
        grown = edge.memory_bytes() - before
    assert big.encode() in found.content
    assert grown < 10 * len(big), f"{grown / len(big):.1f} times the event"


async def test_b012_an_event_without_end(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        if call.number == 1:
            await call.stream(delta("a"), b"data: ", end=False)
            for _ in range(64):
                await call.piece(b"x" * 1024 * 1024)
        else:
            await call.stream(delta("ok"), END)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        before = edge.memory_bytes()
        endless = asyncio.ensure_future(streamed(http))
        other = await streamed(http)
        found = await endless
        grown = edge.memory_bytes() - before
        if other.content.count(b"error"):
            other, found = found, other
        await asyncio.wait_for(up.calls[0].gone.wait(), 2)
    assert content(other.content) == "ok"
    assert set(events(found.content)[-1]) == {"error"}
    assert grown < 64 * 1024 * 1024


@pytest.mark.parametrize("names", [("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content")])
async def test_b015_thinking_is_content_and_comes_once(
    edge: EdgeProcess, http: httpx.AsyncClient, names: tuple[str, ...]
) -> None:
    async def script(call: Call) -> None:
        await call.raw(HEAD)
        await call.piece(_thinking(names, None, "Think"))
        await asyncio.sleep(0.2)
        await call.piece(_thinking(names, "", " more"))
        await call.piece(delta("42") + END)
        await call.raw(b"0\r\n\r\n")

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    deltas = [c["delta"] for e in events(found.content)[:-1] for c in e["choices"]]
    thought = [d[n] for d in deltas for n in ("reasoning", "reasoning_content") if n in d]
    assert thought == ["Think", " more"]
    assert content(found.content) == "42"
    row = edge.settlement(found.headers["x-request-id"])
    assert row.ttft_ms is not None
    assert row.ttft_ms < 150, "the first thought is the first token"


def _thinking(names: tuple[str, ...], said: str | None, thought: str) -> str:
    inner = {"role": "assistant", "content": said, **dict.fromkeys(names, thought)}
    return sse({**CHUNK, "choices": [{"index": 0, "delta": inner, "finish_reason": None}]})


def ended(reason: str, **fields: Any) -> dict[str, Any]:
    found = answer("part", **fields)
    found["choices"][0]["finish_reason"] = reason
    return found


@pytest.mark.parametrize("reason", ["error", "abort"])
async def test_b016_endings_that_mean_failure(edge: EdgeProcess, http: httpx.AsyncClient, reason: str) -> None:
    async def script(call: Call) -> None:
        nothing = {"prompt_tokens": None, "completion_tokens": None, "total_tokens": 0}
        await call.whole(ended(reason, usage=nothing) if call.number == 1 else answer())

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat())
        assert found.json()["choices"][0]["message"]["content"] == "ok"
        edge.serve(endpoint(up.port), retries=0)
        up.calls.clear()
        assert (await http.post(CHAT, json=chat())).status_code == 502


@pytest.mark.parametrize("reason", ["eos_token", ""])
@pytest.mark.parametrize("counts", [None, {"prompt_tokens": None, "completion_tokens": None, "total_tokens": 0}])
async def test_b016_endings_outside_the_set(
    edge: EdgeProcess, http: httpx.AsyncClient, reason: str, counts: dict[str, Any] | None
) -> None:
    async def script(call: Call) -> None:
        await call.whole(ended(reason, usage=counts))

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat())
    assert found.json()["choices"][0]["finish_reason"] == "stop"
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.estimated, row.prompt_tokens, row.completion_tokens) == ("ok", True, 1, 1)


async def test_b016_endings_of_streams(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("a"), end=False)
        await asyncio.sleep(0.05)
        await call.piece(finish("eos_token" if call.number == 1 else "abort"))
        await call.piece(usage() + DONE)
        await call.raw(b"0\r\n\r\n")

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        good = await streamed(http)
        bad = await streamed(http)
    assert [c["finish_reason"] for e in events(good.content)[:-1] for c in e["choices"]] == [None, "stop"]
    assert events(bad.content)[-1]["error"]["code"] == "abort"


async def test_b018_a_silent_engine_keeps_the_stream_open(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        if call.number == 1:  # fails after the stream was opened with comments: another try is still allowed
            await asyncio.sleep(0.5)
            call.reset()
            return
        await asyncio.sleep(0.5)
        await call.stream(delta("ok"), END)

    async with engine(script) as up:
        edge.serve(endpoint(up.port), keepalive_s=0.2)
        before = time.monotonic()
        async with http.stream("POST", CHAT, json=chat(stream=True)) as found:
            assert time.monotonic() - before < 0.45
            body = b"".join([data async for data in found.aiter_raw()])
    assert body.startswith(b": keep-alive\n\n")
    assert 3 <= body.count(b": keep-alive\n\n") <= 5
    assert content(body) == "ok"
    row = edge.settlement(found.headers["x-request-id"])
    assert row.ttft_ms is not None
    assert row.ttft_ms > 900, "a keep-alive is no first token"
    assert row.attempts == 2


async def test_b018_keepalives_do_not_hide_a_stalled_engine(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.stream(*([delta("a")] if call.number == 1 else []), end=False)
        await asyncio.sleep(20)

    async with engine(script) as up:
        edge.serve(endpoint(up.port), keepalive_s=0.1, idle_timeout_s=0.4, header_timeout_s=0.6, retries=0)
        for code in ("engine_timeout", "engine_timeout"):
            found = await streamed(http)
            assert events(found.content)[-1]["error"]["code"] == code
            assert b": keep-alive" in found.content
            assert edge.settlement(found.headers["x-request-id"]).outcome == "timed_out"


@pytest.mark.parametrize("encoding", ["identity", "gzip, deflate, br"])
async def test_b019_nothing_is_held_back(edge: EdgeProcess, http: httpx.AsyncClient, encoding: str) -> None:
    sent: list[float] = []

    async def script(call: Call) -> None:
        await call.raw(HEAD)
        for _ in range(5):
            sent.append(time.monotonic())
            await call.piece(delta("x"))
            await asyncio.sleep(0.1)
        await call.piece(END)
        await call.raw(b"0\r\n\r\n")

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        came: list[float] = []
        async with http.stream("POST", CHAT, json=chat(stream=True), headers={"accept-encoding": encoding}) as found:
            async for _ in found.aiter_raw():
                came.append(time.monotonic())
    assert len(came) >= 6
    assert all(b - a < 0.1 for a, b in zip(sent, came, strict=False))
    assert found.headers["content-type"] == "text/event-stream"
    assert found.headers["cache-control"] == "no-cache"
    assert found.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in found.headers


async def test_a_stream_without_done_gets_one(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """As transformers' server ends its streams."""

    async def script(call: Call) -> None:
        await call.stream(delta("ok"), finish())

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert events(found.content)[-1] == "[DONE]"
    row = edge.settlement(found.headers["x-request-id"])
    assert (row.outcome, row.estimated) == ("ok", True)


async def test_other_line_ends(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    text = (delta("a") + delta("b") + END).replace("\n", "\r\n").encode()

    async def script(call: Call) -> None:
        await call.stream(*[text[i : i + 7] for i in range(0, len(text), 7)])

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await streamed(http)
    assert content(found.content) == "ab"
    assert b"usage" not in found.content
    assert edge.settlement(found.headers["x-request-id"]).completion_tokens == 2


async def test_a_slow_reader_does_not_fill_the_memory(edge: EdgeProcess) -> None:
    """Back-pressure: the engine waits for the client, not the gateway's memory."""
    written = 0

    async def script(call: Call) -> None:
        nonlocal written
        await call.raw(HEAD)
        for _ in range(2000):
            await call.piece(delta("x" * 65536))
            written += 65536

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        before = edge.memory_bytes()
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port, limit=65536)
        body = json.dumps(chat(stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: {AUTH['authorization']}\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.7)
        grown, at = edge.memory_bytes() - before, written
        writer.transport.abort()
        await asyncio.wait_for(up.calls[0].gone.wait(), 2)
    assert at < 40 * 1024 * 1024
    assert grown < 16 * 1024 * 1024, f"{grown / 2**20:.0f} MiB"
