"""Requests that want to be read as two: what the edge refuses, and what it must not answer twice."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.edges import AUTH, EdgeProcess, endpoint
from tests.gateway.test_connections import CHAT, Dial, dial, message, said, whole, words
from tests.gateway.upstreams import Call, answer, engine

__all__ = ["dial"]

HIDDEN = b"GET /v1/hidden HTTP/1.1\r\nhost: x\r\n\r\n"
"""Whoever reads it as a request answers 404."""


def head(*lines: str) -> bytes:
    usual = (f"POST {CHAT} HTTP/1.1", "host: x", f"authorization: {AUTH['authorization']}")
    return "\r\n".join((*usual, *lines)).encode() + b"\r\n\r\n"


SMUGGLED = {
    "length and chunks": head("content-length: 5", "transfer-encoding: chunked") + b"0\r\n\r\n",
    "chunks and length": head("transfer-encoding: chunked", "content-length: 5") + b"0\r\n\r\n",
    "two lengths": head("content-length: 0", "content-length: 40"),
    "two lengths in one": head("content-length: 0, 40"),
    "a negative length": head("content-length: -1"),
    "a length with a sign": head("content-length: +0"),
    "a length in hex": head("content-length: 0x0"),
    "another coding last": head("transfer-encoding: chunked, identity") + b"0\r\n\r\n",
    "an unknown coding": head("transfer-encoding: xchunked") + b"0\r\n\r\n",
    "a space before the colon": head("content-length : 0"),
    "a line that goes on": head("x-a: b", " content-length: 0"),
    "a nul in a value": head("x-a: b\x00c", "content-length: 0"),
    "a bare carriage return": head("x-a: b\rcontent-length: 0"),
    "a chunk's size in words": head("transfer-encoding: chunked") + b"zz\r\n",
    "a negative chunk": head("transfer-encoding: chunked") + b"-1\r\n",
    "a chunk larger than any": head("transfer-encoding: chunked") + b"f" * 17 + b"\r\n",
    "a chunk with more than it says": head("transfer-encoding: chunked") + b"1\r\nab\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("trick", SMUGGLED)
async def test_what_hides_a_request_is_not_answered_twice(edge: EdgeProcess, dial: Dial, trick: str) -> None:
    """It is refused and its connection ends, so that nothing behind it is read."""
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        wire.write(SMUGGLED[trick] + HIDDEN)
        found = await wire.ended()
        assert found.startswith(b"HTTP/1.1 400 "), found
        assert b" 404 " not in found
        assert not up.calls


async def test_garbage_behind_a_request_is_not_its_answer(edge: EdgeProcess, dial: Dial) -> None:
    """The request itself was good: it must not be told that it was not."""

    async def slow(call: Call) -> None:
        await asyncio.sleep(0.3)
        await call.whole(answer("late"))

    async with engine(slow) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        wire.write(message() + b"\x00\x01 nonsense\r\n\r\n")
        assert b" 400 " not in await wire.ended()


async def test_a_head_that_never_ends_its_line(edge: EdgeProcess, dial: Dial) -> None:
    """Byte by byte it is only slow, and others are served meanwhile."""
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        slow, quick = await dial(), await dial()
        text = message(messages=words("slow"))
        for at in range(60):
            slow.write(text[at : at + 1])
            await asyncio.sleep(0.001)
        quick.write(message())
        assert (await quick.answer())[0] == 200
        slow.write(text[60:])
        assert (await slow.answer())[0] == 200


async def test_a_client_that_says_it_sends_no_more(edge: EdgeProcess, dial: Dial) -> None:
    """A half-closed connection is a client that has left: so do those of OpenAI's libraries that give up."""
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        wire.write(message())
        assert said((await wire.answer())[2]) == "1"
        wire.writer.write_eof()
        assert await wire.ended() == b""


async def test_who_wants_the_connection_closed(edge: EdgeProcess, dial: Dial) -> None:
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        wire.write(message("connection: close") + HIDDEN)
        status, said_head, _ = await wire.answer()
        assert status == 200
        assert b"connection: close" in said_head
        assert await wire.ended() == b""


async def test_a_head_without_a_body_of_the_inference_path(edge: EdgeProcess, dial: Dial) -> None:
    """HEAD and GET take the other way, and keep the connection in order."""
    async with engine(whole) as up:
        edge.serve(endpoint(up.port))
        wire = await dial()
        for method in ("HEAD", "GET"):
            wire.write(f"{method} {CHAT} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            said_head = await asyncio.wait_for(wire.reader.readuntil(b"\r\n\r\n"), 5)
            assert said_head.startswith(b"HTTP/1.1 405 ")
            if method == "GET":
                size = int(said_head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await wire.reader.readexactly(size)
        wire.write(message())
        assert (await wire.answer())[0] == 200
