"""Requests as clients really send them, each by the number of its case."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from gateway.core import snapshot
from tests.gateway.edges import AUTH, EdgeProcess, catalog, chat, content, endpoint
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish

CHAT = "/v1/chat/completions"
CALLS = [{"id": "call_1", "type": "function", "function": {"name": "w", "arguments": "{}"}}]


async def whole(call: Call) -> None:
    await call.whole(answer())


async def raw(edge: EdgeProcess, *pieces: bytes, wait_for: bytes = b"") -> bytes:
    """What comes back on one connection for these bytes, until it is closed or quiet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    found = b""
    for piece in pieces:
        writer.write(piece)
        if wait_for and piece is pieces[0]:
            found += await asyncio.wait_for(reader.readuntil(wait_for), 3)
    try:
        while data := await asyncio.wait_for(reader.read(65536), 0.5):
            found += data
    except TimeoutError:
        pass
    writer.close()
    return found


INSTRUCTED = [
    {"role": "system", "content": "S"},
    {"role": "developer", "content": "Answer in rhyme."},
    {"role": "user", "content": "hi"},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["orchid-8b", "helper"])
async def test_b020_developer_role(edge: EdgeProcess, http: httpx.AsyncClient, model: str, stream: bool) -> None:
    async def picky(call: Call) -> None:
        given = [m["role"] for m in call.json["messages"]]
        if "developer" in given or "system" in given[1:]:
            await call.whole({"error": {"message": "System message must be at the beginning."}}, 400)
        else:
            await (call.stream(delta("ok"), finish(), DONE) if stream else call.whole(answer()))

    later = [INSTRUCTED[2], {"role": "developer", "content": [{"type": "text", "text": "T"}]}, *INSTRUCTED[:2]]
    async with engine(picky) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(model=model, messages=INSTRUCTED, stream=stream))
        mixed = await http.post(CHAT, json=chat(model=model, messages=later, stream=stream, x=1.50))
    assert (found.status_code, mixed.status_code) == (200, 200)
    assert up.calls[0].json["messages"] == [{"role": "system", "content": "S\n\nAnswer in rhyme."}, INSTRUCTED[2]]
    assert up.calls[1].json["messages"] == [
        {"role": "system", "content": "T\n\nS\n\nAnswer in rhyme."},
        INSTRUCTED[2],
    ]
    assert up.calls[0].json["model"] == "orchid-8b"


async def test_b020_a_model_that_takes_the_role(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    entry = snapshot.ModelEntry("new", (), "serving", developer_role=True)
    async with engine(whole) as up:
        edge.serve(endpoint(up.port, model="new"))
        edge.publish(catalog=catalog(new=entry))
        sent = json.dumps(chat(model="new", messages=INSTRUCTED)).encode()
        assert (await http.post(CHAT, content=sent)).status_code == 200
        assert up.calls[0].body == sent


@pytest.mark.parametrize("said", [{"content": None}, {}, {"content": ""}])
async def test_b021_a_turn_of_tool_calls_alone(
    edge: EdgeProcess, http: httpx.AsyncClient, said: dict[str, Any]
) -> None:
    messages = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "tool_calls": CALLS, **said},
        {"role": "tool", "tool_call_id": "call_1", "content": "12C"},
    ]
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(messages=messages))
        assert found.status_code == 200
        assert up.calls[0].json["messages"] == messages


async def test_b021_a_user_message_without_content(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(messages=[{"role": "user", "content": None}]))
        assert not up.calls
    assert found.status_code == 400
    assert found.json()["error"]["param"] == "messages[0].content"


async def test_b023_a_chunked_body_after_continue(edge: EdgeProcess) -> None:
    body = json.dumps(chat()).encode()
    half = len(body) // 2
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: gw\r\nAuthorization: {AUTH['authorization']}\r\nContent-Type: application/json"
        "\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    ).encode()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:half], body[half:])) + b"0\r\n\r\n"
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        found = await raw(edge, head, chunks, wait_for=b"100 Continue\r\n\r\n")
    assert found.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 200 OK" in found
    assert up.calls[0].body == body


async def test_b023_http_1_0_gets_no_chunks(edge: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("ok"), finish(), DONE)

    body = json.dumps(chat(stream=True)).encode()
    head = f"POST {CHAT} HTTP/1.0\r\nAuthorization: {AUTH['authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await raw(edge, head.encode() + body)
    headers, _, stream = found.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in headers.lower()
    assert b"connection: close" in headers.lower()
    assert stream.startswith(b"data: {")
    assert content(stream) == "ok"
    assert stream.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(("key", "status"), [("Bearer BAD", 401), (AUTH["authorization"], 413)])
async def test_b023_a_refusal_does_not_wait_for_the_body(edge: EdgeProcess, key: str, status: int) -> None:
    edge.serve()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: gw\r\nAuthorization: {key}\r\nExpect: 100-continue\r\n"
    head += "Content-Length: 50000000\r\n\r\n"
    found = await raw(edge, head.encode())
    assert found.startswith(b"HTTP/1.1 %d" % status)
    assert b"100 Continue" not in found
    assert b"connection: close" in found.lower()


async def test_b025_large_bodies(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    picture = "data:image/png;base64," + "A" * 10_000_000
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}]
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        before = edge.memory_bytes()
        found = await http.post(CHAT, json=chat(messages=messages))
        grown = edge.memory_bytes() - before
        assert found.status_code == 200
        assert up.calls[0].json["messages"] == messages
        assert grown < 45_000_000
        edge.serve(endpoint(up.port), max_body_bytes=1000)
        too_much = await http.post(CHAT, content=b"{" + b" " * 1000)
        chunked = await http.post(CHAT, content=_pieces())
    for refused in (too_much, chunked):
        assert refused.status_code == 413
        assert refused.json()["error"]["code"] == "request_too_large"
        assert "1000 bytes" in refused.json()["error"]["message"]


async def _pieces() -> Any:
    for _ in range(4):
        yield b" " * 400


async def test_b027_null_means_absent(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    nulls = dict.fromkeys(("temperature", "stop", "seed", "tools", "stream", "stream_options", "max_tokens", "user"))
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(**nulls))
        assert found.status_code == 200
        assert found.headers["content-type"] == "application/json"
        assert up.calls[0].json == chat(**nulls)


async def test_b027_a_boolean_as_text(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        found = await http.post(CHAT, json=chat(stream="false"))
        assert not up.calls
    assert found.status_code == 400
    assert found.json()["error"]["param"] == "stream"
    assert found.json()["error"]["message"] == "stream must be bool | null, and is str"


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
    ],
)
async def test_b028_parts_arrive_in_order(edge: EdgeProcess, http: httpx.AsyncClient, parts: list[Any]) -> None:
    messages = [{"role": "user", "content": parts}, {"role": "tool", "tool_call_id": "c", "content": ""}]
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        assert (await http.post(CHAT, json=chat(messages=messages))).status_code == 200
        assert up.calls[0].json["messages"] == messages


async def test_b028_what_a_model_cannot_see_is_refused(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    image = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iV"}}]
    blind = snapshot.ModelEntry("blind", (), "serving", vision=False)
    async with engine(whole) as up:
        edge.serve(endpoint(up.port, model="blind"))
        edge.publish(catalog=catalog(blind=blind))
        seen = await http.post(CHAT, json=chat(model="blind", messages=[{"role": "user", "content": image}]))
        odd = await http.post(CHAT, json=chat(messages=[{"role": "user", "content": [image[0], {"type": "smell"}]}]))
        assert not up.calls
    assert seen.status_code == 400
    assert "does not see pictures" in seen.json()["error"]["message"]
    assert odd.status_code == 400
    assert odd.json()["error"]["param"] == "messages[0].content[1].type"
