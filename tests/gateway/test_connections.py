"""A client's connection: pipelining, keep-alive, bodies in pieces, limits of heads, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.gateway.edges import AUTH, EdgeProcess, chat, content, endpoint
from tests.gateway.upstreams import DONE, HEAD, Call, answer, delta, engine, finish, usage

CHAT = "/v1/chat/completions"
END = finish() + usage() + DONE
LENGTH = re.compile(rb"content-length: (\d+)")


def message(*headers: str, path: str = CHAT, body: bytes | None = None, **fields: Any) -> bytes:
    body = json.dumps(chat(**fields)).encode() if body is None else body
    lines = [f"POST {path} HTTP/1.1", "host: x", f"authorization: {AUTH['authorization']}", *headers]
    if not any(h.lower().startswith("transfer-encoding") for h in headers):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def whole(call: Call) -> None:
    await call.whole(answer(str(call.number)))


async def echo(call: Call) -> None:
    said = call.json["messages"][0]["content"]
    if call.json.get("stream"):
        await call.stream(delta(said), END)
    else:
        await asyncio.sleep(0.05 if said == "slow" else 0)
        await call.whole(answer(said))


class Wire:
    """A client's bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head and body of the next answer."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)
        found = LENGTH.search(head)
        if found is not None:
            body = await self.reader.readexactly(int(found[1]))
        elif b"transfer-encoding: chunked" in head:
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            assert await self.reader.readline() == b"\r\n"
        else:
            body = await self.reader.read()
        return int(head[9:12]), head, body

    async def ended(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 3)

    def leave(self) -> None:
        self.writer.transport.abort()


Dial = Callable[[], Awaitable[Wire]]


@pytest.fixture
async def dial(edge: EdgeProcess) -> AsyncIterator[Dial]:
    """New connections to the edge, closed at the test's end."""
    wires: list[Wire] = []

    async def new() -> Wire:
        wires.append(Wire(*await asyncio.open_connection("127.0.0.1", edge.port)))
        return wires[-1]

    yield new
    for wire in wires:
        wire.leave()
    await asyncio.sleep(0)


def said(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


def words(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_answers_come_in_the_order_of_the_requests(edge: EdgeProcess, dial: Dial) -> None:
    """Pipelined, of both kinds: the inference path and what goes through ASGI, with streams among them."""
    async with engine(echo) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        health = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
        names = ["slow", "b", "c", "d", "e", "f"]
        asked = [message(messages=words(n), stream=n in "ce") for n in names]
        wire.write(b"".join([asked[0], health, asked[1], asked[2], health, *asked[3:]]))
        found = [await wire.answer() for _ in range(8)]
        assert [status for status, _, _ in found] == [200] * 8
        assert found[1][2] == found[4][2] == b"ok\n"
        chats = [content(b) if b"event-stream" in head else said(b) for _, head, b in found if b != b"ok\n"]
        assert chats == names
        assert [c.json["messages"][0]["content"] for c in up.calls] == names
        wire.write(asked[1])
        assert said((await wire.answer())[2]) == "b"
        wire.leave()


async def test_a_head_that_comes_again(edge: EdgeProcess, dial: Dial) -> None:
    """To the byte but for the body's length, among others, with another kind between, in pieces, two at once, refused,
    and from an engine whose answers differ in length alone."""
    async with engine(echo) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()

        async def ask(text: str, *headers: str, status: int = 200) -> None:
            wire.write(message(*headers, messages=words(text)))
            found, _, body = await wire.answer()
            assert (found, said(body) if found == 200 else "") == (status, text if found == 200 else "")

        for text in ("a", "bb", "c" * 1000, "", "d" * 20_000, "e"):
            await ask(text)
        await ask("f", "x-llmgw-tags: a=1")
        await ask("g", "x-llmgw-band: nonsense", status=400)
        await ask("h")
        wire.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await wire.answer())[2] == b"ok\n"
        await ask("i")
        wire.write(message(messages=words("j")) + message(messages=words("k")))
        assert [said((await wire.answer())[2]) for _ in "jk"] == ["j", "k"]
        text = message(messages=words("l"))
        for part in (text[:-7], text[-7:]):
            wire.write(part)
            await asyncio.sleep(0.02)
        assert said((await wire.answer())[2]) == "l"
        await ask("m")
        await ask("n")
        assert [c.json["messages"][0]["content"] for c in up.calls][-6:] == ["i", "j", "k", "l", "m", "n"]
        length = str(len(text.partition(b"\r\n\r\n")[2])).encode()
        wire.write(text.replace(b"content-length: " + length, b"content-length: +" + length))
        assert (await wire.answer())[0] == 400
        assert await wire.ended() == b""


async def test_many_pipelined_requests(edge: EdgeProcess, dial: Dial) -> None:
    """More than are queued before reading pauses, in many small writes."""
    async with engine(echo) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        text = b"".join(message(messages=words(str(i))) for i in range(60))
        for at in range(0, len(text), 500):
            wire.write(text[at : at + 500])
            await asyncio.sleep(0)
        assert [said((await wire.answer())[2]) for _ in range(60)] == [str(i) for i in range(60)]
        wire.leave()


@pytest.mark.parametrize("queued", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_the_engine(edge: EdgeProcess, dial: Dial, queued: int, stream: bool) -> None:
    """At once, before the first token, whatever else it has asked for on the connection; what was queued never runs."""

    async def script(call: Call) -> None:
        await asyncio.sleep(20)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        before = set(edge.books())
        wire = await dial()
        wire.write(message(stream=stream) * (1 + queued))
        while not up.calls:
            await asyncio.sleep(0.01)
        wire.leave()
        began = time.monotonic()
        await asyncio.wait_for(up.calls[0].gone.wait(), 2)
        assert time.monotonic() - began < 0.5
        assert (edge.last(before=before).outcome, len(up.calls)) == ("client_left", 1)


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_client_that_leaves_in_the_middle_of_its_request(edge: EdgeProcess, dial: Dial, part: str) -> None:
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        before = set(edge.books())
        wire = await dial()
        text = message("expect: 100-continue")
        if part == "head":
            wire.write(text[:60])
            await asyncio.sleep(0.1)
        else:
            wire.write(text[:-30])
            await wire.reader.readuntil(b"100 Continue\r\n\r\n")
        wire.leave()
        await asyncio.sleep(0.05)
        if part == "body":
            row = edge.last(before=before)
            assert (row.outcome, row.status, row.attempts) == ("client_left", 499, 0)
        await asyncio.sleep(0.1)
        assert not up.calls
        assert (await _ask(dial))[0] == 200


async def _ask(dial: Dial) -> tuple[int, bytes, bytes]:
    wire = await dial()
    wire.write(message())
    found = await wire.answer()
    wire.leave()
    return found


async def test_a_body_byte_by_byte(edge: EdgeProcess, dial: Dial) -> None:
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        text = message("connection: close")
        for at in range(len(text)):
            wire.write(text[at : at + 1])
            await asyncio.sleep(0)
        status, head, _ = await wire.answer()
        assert (status, await wire.ended()) == (200, b"")
        assert b"connection: close" in head
        assert up.calls[0].json == chat()


async def test_chunks_of_any_size(edge: EdgeProcess, dial: Dial) -> None:
    body = json.dumps(chat(user="x" * 300_000)).encode()
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        for size in (7, 1000, 100_000):
            wire = await dial()
            piece = body if size > 7 else json.dumps(chat()).encode()
            pieces = [piece[at : at + size] for at in range(0, len(piece), size)]
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
            wire.write(message("transfer-encoding: chunked", body=chunks))
            assert (await wire.answer())[0] == 200
            assert up.calls[-1].body == piece
            wire.write(message())
            assert (await wire.answer())[0] == 200
            wire.leave()


async def test_expect_with_the_body_already_there(edge: EdgeProcess, dial: Dial) -> None:
    """Nothing is asked for that has come."""
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        wire.write(message("expect: 100-continue"))
        assert (await wire.answer())[0] == 200
        wire.leave()


async def test_a_refused_body_does_not_become_a_request(edge: EdgeProcess, dial: Dial) -> None:
    """It is read away where it is small, and the connection lives on; else the connection ends."""
    edge.serve()
    wire = await dial()
    inner = message()
    wire.write(message(path="/v1/embeddings", body=inner).replace(AUTH["authorization"].encode(), b"Bearer BAD", 1))
    assert (await wire.answer())[0] == 401
    wire.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await wire.answer())[2] == b"ok\n"
    wire.leave()


@pytest.mark.parametrize(
    "text",
    [
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-long: ".encode() + b"a" * 100_000,
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n".encode() + b"x-a: b\r\n" * 101 + b"content-length: 0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\n" + b"x-a: b\r\n" * 101 + b"\r\n",
    ],
)
async def test_heads_have_limits(edge: EdgeProcess, dial: Dial, text: bytes) -> None:
    edge.serve()
    wire = await dial()
    wire.write(text)
    found = await wire.ended()
    assert found.startswith(b"HTTP/1.1 431 ")
    assert found.count(b"HTTP/1.1") == 1


async def test_garbage_behind_a_request_does_not_enter_its_answer(edge: EdgeProcess, dial: Dial) -> None:
    async def script(call: Call) -> None:
        await call.raw(HEAD)
        for _ in range(20):
            await call.piece(delta("x"))
            await asyncio.sleep(0.05)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        wire.write(message(stream=True))
        await wire.reader.readuntil(b"data: ")
        wire.write(b"\x00\x01 nonsense\r\n\r\n")
        rest = await wire.ended()
        assert b"HTTP/1.1 400" not in rest
        await asyncio.wait_for(up.calls[0].gone.wait(), 2)


async def test_a_question_mark_and_percents_in_the_path(edge: EdgeProcess, dial: Dial) -> None:
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        for path in (f"{CHAT}?api-version=1", "/v1/chat%2Fcompletions", f"http://x{CHAT}"):
            wire.write(message(path=path))
            assert (await wire.answer())[0] == 200, path
        wire.leave()


async def test_an_upgrade_that_nobody_asked_for(edge: EdgeProcess, dial: Dial) -> None:
    """As the JDK's client sends it with its first request."""
    upgrade = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAAAAIAAAABAAMAAABk")
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        wire.write(message(*upgrade))
        assert (await wire.answer())[0] == 200
        text = message(*upgrade)
        wire.write(text[:-20])
        await asyncio.sleep(0.05)
        wire.write(text[-20:])
        assert (await wire.answer())[0] == 200
        assert [c.json for c in up.calls] == [chat(), chat()]
        wire.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        assert (await wire.answer())[2] == b"ok\n"
        wire.write(b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await wire.answer())[0] == 400
        wire.leave()


FRAMES: dict[str, Callable[[bytes], list[bytes]]] = {
    "a chunk a read": lambda e: [b"%x\r\n%b\r\n" % (len(e), e)],
    "capitals": lambda e: [b"%X\r\n%b\r\n" % (len(e), e)],
    "zeros in front": lambda e: [b"00%x\r\n%b\r\n" % (len(e), e)],
    "an extension": lambda e: [b"%x;a=b\r\n%b\r\n" % (len(e), e)],
    "the size alone": lambda e: [b"%x\r\n" % len(e), e, b"\r\n"],
    "cut anywhere": lambda e: [b"%x\r\n%b" % (len(e), e[:30]), e[30:] + b"\r", b"\n"],
    "an event in two chunks": lambda e: [b"1e\r\n%b\r\n%x\r\n%b\r\n" % (e[:30], len(e) - 30, e[30:])],
    "its end in the next read": lambda e: [b"%x\r\n%b\r\n" % (len(e) - 1, e[:-1]), b"1\r\n\n\r\n"],
}


@pytest.mark.parametrize("frame", FRAMES)
async def test_chunks_however_they_are_framed(edge: EdgeProcess, dial: Dial, frame: str) -> None:
    """A read that is one whole chunk goes past the parser, which must not lose its place by that."""
    texts = ["a", "b c", "ü🌍", "d" * 300, 'a "quote"', "e\\", "\n\n", "f", "5\r\nabcde\r\n", "g"]

    async def script(call: Call) -> None:
        await call.raw(HEAD)
        for i, text in enumerate(texts):
            event = delta(text).encode()
            pieces = FRAMES[frame](event) if i else [b"%x\r\n%b\r\n" % (len(event), event)]
            for piece in pieces:
                await call.raw(piece)
                await asyncio.sleep(0.003)
        last = (finish() + usage() + DONE).encode()
        await call.raw(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))

    async with engine(script) as upstream:
        edge.serve(endpoint(upstream.port))
        client = await dial()
        for _ in range(2):  # on a kept connection
            client.write(message(stream=True))
            status, _, body = await client.answer()
            assert status == 200
            assert content(body) == "".join(texts)
        assert upstream.connections == 1


async def test_a_chunk_of_a_wrong_size_is_a_fault(edge: EdgeProcess, dial: Dial) -> None:
    async def script(call: Call) -> None:
        await call.raw(HEAD)
        for text in ("a", "b"):
            await call.piece(delta(text))
            await asyncio.sleep(0.01)
        event = delta("c").encode()
        await call.raw(b"%x\r\n%b\r\n" % (len(event) - 1, event))
        await asyncio.sleep(0.01)

    async with engine(script) as upstream:
        edge.serve(endpoint(upstream.port))
        client = await dial()
        client.write(message(stream=True))
        status, _, body = await client.answer()
        assert status == 200
        assert b"no HTTP/1.1" in body
        assert content(body).startswith("ab")


@pytest.mark.parametrize("split", [1, 300_000, 2_000_000])
@pytest.mark.parametrize("pause_s", [0.0, 0.05])
async def test_a_large_body_arrives_whole(edge: EdgeProcess, dial: Dial, split: int, pause_s: float) -> None:
    """It goes past the parser, which must find the next request behind it."""
    data = "".join(chr(97 + i % 26) for i in range(1_500_000))

    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        asked = message(messages=words(data))
        behind = message(messages=words("next"))
        wire.write(asked[: len(asked) - split] if split < len(asked) else asked[:20])
        await asyncio.sleep(pause_s)
        wire.write(asked[len(asked) - split :] + behind if split < len(asked) else asked[20:] + behind)
        for _ in range(2):
            assert (await wire.answer())[0] == 200
        assert [c.json["messages"][0]["content"] for c in up.calls] == [data, "next"]
        wire.write(asked)
        assert (await wire.answer())[0] == 200
        wire.leave()


@pytest.mark.parametrize("end", ["leaves", "closes its side"])
async def test_a_client_that_leaves_within_a_large_body(edge: EdgeProcess, dial: Dial, end: str) -> None:
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        asked = message(messages=words("a" * 1_500_000))
        wire.write(asked[:900_000])
        await asyncio.sleep(0.1)
        if end == "leaves":
            wire.leave()
        else:
            wire.writer.write_eof()
            assert await wire.ended() == b""
        assert (await edge_answers(dial))[0] == 200
        assert len(up.calls) == 1


async def edge_answers(dial: Dial) -> tuple[int, bytes, bytes]:
    wire = await dial()
    wire.write(message())
    return await wire.answer()


async def test_a_large_body_that_nobody_may_send(edge: EdgeProcess, dial: Dial) -> None:
    """Refused by its first bytes; the connection ends behind the answer."""
    wire = await dial()
    wire.write(message(body=b"x" * 1_000_000).replace(AUTH["authorization"].encode(), b"Bearer llmgw_wrong"))
    assert (await wire.answer())[0] == 401
