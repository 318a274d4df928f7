"""Engines that do as a script says, on raw sockets: what real ones do once a month."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Script = Callable[["Call"], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = {"id": "chatcmpl-a1", "object": "chat.completion.chunk", "created": 1, "model": "orchid-8b"}


@dataclass
class Call:
    """One request that an engine got, and how it answers."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    number: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway closed the connection."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def stream(self, *pieces: bytes | str, end: bool = True) -> None:
        """Head, then each piece as one HTTP chunk."""
        await self.raw(HEAD)
        for piece in pieces:
            await self.piece(piece)
        if end:
            await self.raw(b"0\r\n\r\n")

    async def piece(self, data: bytes | str) -> None:
        data = data.encode() if isinstance(data, str) else data
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))
        await asyncio.sleep(0)

    async def whole(self, body: bytes | dict[str, Any], status: int = 200, *headers: str) -> None:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        head = [f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(data)}", *headers]
        await self.raw("\r\n".join(head).encode() + b"\r\n\r\n" + data)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


@dataclass
class Upstream:
    port: int
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    metrics: bytes | None = None
    """What it says of itself; None: nothing. Questions for it are no calls."""


@contextlib.asynccontextmanager
async def engine(script: Script, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
    """A listening engine; every request is given to `script`."""
    found = Upstream(0)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        found.connections += 1
        found.open += 1
        try:
            await _serve(reader, writer, script, found)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # also at the end of the test: Python 3.11 logs a cancelled handler as an error
        finally:
            found.open -= 1
            tasks.discard(task)
            if tls is None:
                writer.close()
            else:
                writer.transport.abort()  # an ordered end of TLS would outlive the test

    server = await asyncio.start_server(connected, "127.0.0.1", port, limit=1 << 24, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0)  # transports are closed in the loop's next turn


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, script: Script, found: Upstream) -> None:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ", 2)
        if path == "/metrics":
            found.connections -= 1
            text = found.metrics
            status, text = (404, b"") if text is None else (200, text)
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text), text))
            await writer.drain()
            return
        call = Call(reader, writer, method, path, headers, body, len(found.calls) + 1)
        found.calls.append(call)
        watch = asyncio.ensure_future(_watch(call))
        try:
            await script(call)
        except ConnectionError:
            call.gone.set()
            raise
        finally:
            watch.cancel()
        if writer.is_closing():
            return


async def _watch(call: Call) -> None:
    """Nothing more is read while a script runs, so a poll of the transport tells a closed connection."""
    while not call.reader.at_eof() and call.reader.exception() is None and not call.writer.is_closing():
        await asyncio.sleep(0.01)
    call.gone.set()


def sse(data: Any) -> str:
    return f"data: {data if isinstance(data, str) else json.dumps(data, separators=(',', ':'))}\n\n"


def delta(content: str | None = None, **fields: Any) -> str:
    inner = {"content": content} if content is not None else fields
    return sse({**CHUNK, "choices": [{"index": 0, "delta": inner, "finish_reason": None}]})


def finish(reason: str = "stop") -> str:
    return sse({**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def usage(prompt: int = 11, completion: int = 2) -> str:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return sse({**CHUNK, "choices": [], "usage": counts})


DONE = "data: [DONE]\n\n"


def answer(content: str = "ok", **fields: Any) -> dict[str, Any]:
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "orchid-8b",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13},
        **fields,
    }
