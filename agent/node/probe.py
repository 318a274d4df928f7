"""Asks an engine over HTTP, with the least that does it: the agent stays small and its first answer quick."""

from __future__ import annotations

import asyncio
import contextlib

from agent.core.readiness import Response

_MOST = 1024 * 1024


async def get(host: str, port: int, path: str, key: str, timeout_s: float = 2.0) -> Response | None:
    """The answer to `GET path`; None when nobody answers HTTP there in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(host, port, path, key)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None


async def connects(host: str, port: int, timeout_s: float = 1.0) -> bool | None:
    """True: somebody listens there; False: nobody does; None: a slow answer tells neither."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError):
        return None
    writer.close()
    return True


async def _get(host: str, port: int, path: str, key: str) -> Response | None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        shown = f"[{host}]" if ":" in host else host
        writer.write(
            # HTTP/1.0: the answer is not chunked, and ends with its connection.
            f"GET {path} HTTP/1.0\r\nHost: {shown}:{port}\r\nAuthorization: Bearer {key}\r\n"
            "Accept: application/json\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split(b" ", 2)
        if len(status) < 2 or not status[0].startswith(b"HTTP/"):
            return None
        length = _length(head)
        body = await (_to_the_end(reader) if length is None else reader.readexactly(min(length, _MOST)))
        return Response(int(status[1][:3]), body)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _to_the_end(reader: asyncio.StreamReader) -> bytes:
    """At most `_MOST` bytes: one read gives only what has come so far."""
    body = b""
    while len(body) < _MOST and (piece := await reader.read(_MOST - len(body))):
        body += piece
    return body


def _length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return None
