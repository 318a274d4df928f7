"""As much of an HTTP/1.1 server as a pretended engine needs: bodies by length, answers whole or in chunks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

_MOST_BODY = 64 * 1024 * 1024
_WORDS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
_WORDS |= {413: "Content Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}


class Left(Exception):
    """The client is gone."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    """Names in small letters."""
    body: bytes


class Reply:
    """One answer's way out."""

    def __init__(self, writer: asyncio.StreamWriter, keeps: bool) -> None:
        self._writer = writer
        self._tail = "" if keeps else "Connection: close\r\n"
        self.chunked = False

    def whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self._writer.write(
            f"HTTP/1.1 {status} {_WORDS.get(status, 'Status')}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n{self._tail}\r\n".encode()
            + body
        )

    def json(self, status: int, value: Any) -> None:
        self.whole(status, json.dumps(value).encode())

    def begin(self, kind: str = "text/event-stream") -> None:
        self.chunked = True
        self._writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n{self._tail}\r\n".encode()
        )

    def piece(self, data: bytes) -> None:
        """Raises `Left`."""
        if self._writer.is_closing():
            raise Left
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    def finish(self) -> None:
        self._writer.write(b"0\r\n\r\n")

    async def drain(self) -> None:
        """Raises `Left`."""
        try:
            await self._writer.drain()
        except (ConnectionError, OSError):
            raise Left from None

    @property
    def left(self) -> bool:
        return self._writer.is_closing()


Handler = Callable[[Request, Reply], Awaitable[None]]


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """One connection, a request after the other, until either side has enough. While an answer is made the client is
    watched: one that leaves ends it."""
    try:
        while (request := await _request(reader, writer)) is not None:
            keeps = request.headers.get("connection", "").lower() != "close"
            reply = Reply(writer, keeps)
            answering = asyncio.ensure_future(handler(request, reply))
            watching = asyncio.ensure_future(_gone(reader))
            try:
                await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    return
                answering.result()
                await writer.drain()
            finally:
                answering.cancel()
                watching.cancel()
                await asyncio.gather(answering, watching, return_exceptions=True)
            if not keeps:
                return
    except (Left, ConnectionError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return
    finally:
        writer.close()


async def _gone(reader: asyncio.StreamReader) -> None:
    """Returns when the client has closed its end; what it sends meanwhile stays where it is."""
    while not reader.at_eof():  # noqa: ASYNC110 - a StreamReader tells of an end only to who reads
        await asyncio.sleep(0.05)


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {n.strip().lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        length = int(headers.get("content-length") or 0)
        if length > _MOST_BODY:
            Reply(writer, keeps=False).json(
                413, {"error": {"message": "the body is too large", "type": "invalid_request_error", "code": 413}}
            )
            return None
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(length) if length else b""
    return Request(method, target.split("?", 1)[0], headers, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)
