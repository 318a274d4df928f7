"""An engine of all moods: the request's `user` says how it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator

from bench.contenders import Engine

_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_BODY = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes " * 60}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69},
    }
).encode()
_WIDE = "w" * 16_000


@contextlib.asynccontextmanager
async def moody(seed: int) -> AsyncIterator[Engine]:
    """Two ports, as two replicas have."""
    rng = random.Random(seed)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _serve(reader, writer, rng)
        tasks.discard(task)
        writer.close()

    servers = [await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 20, backlog=512) for _ in range(2)]
    try:
        yield Engine(0, tuple(server.sockets[0].getsockname()[1] for server in servers))
    finally:
        for server in servers:
            server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
        body = await reader.readexactly(length)
        if not head.startswith(b"POST"):
            writer.write(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n")
            continue
        mood = body.partition(b'"user":"')[2].partition(b'"')[0].decode()
        if not await _answer(mood, writer, rng):
            return


async def _answer(mood: str, writer: asyncio.StreamWriter, rng: random.Random) -> bool:
    """Whether the connection may be used again."""
    if (mood == "retried" and rng.random() < 0.5) or mood == "refused":
        writer.write(b"HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\n{}")
    elif mood == "reset":
        writer.transport.abort()
        return False
    elif mood in ("whole", "large", "retried"):
        await asyncio.sleep(rng.random() * 0.02)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_BODY))
        writer.write(_BODY)
    else:
        writer.write(_STREAM)
        count, text, gap_s = (200, _WIDE, 0.0) if mood == "slow" else (24, "t", 0.005)
        for i in range(count):
            if mood == "cut" and i == 5:
                writer.transport.abort()
                return False
            if mood == "reports" and i == 5:
                _event(writer, {"error": {"message": "out of memory", "code": "oom"}})
                return False
            _event(writer, {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
            await writer.drain()
            await asyncio.sleep(gap_s)
        _event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        _event(writer, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": count}})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()
    return True


def _event(writer: asyncio.StreamWriter, chunk: dict[str, object]) -> None:
    event = b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", **chunk}).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
