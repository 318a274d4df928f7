"""Every path that is not the inference path goes to web over its unix socket, byte for byte, both ways.

What only the edge knows (who is really calling) is told to web in headers that a client cannot forge; what
belongs to one connection stays on it.
"""

from __future__ import annotations

import asyncio
import html
from http import HTTPStatus
from ipaddress import ip_network
from urllib.parse import urlsplit

import msgspec

from gateway.core.errors import TooLarge
from gateway.core.origin import origin
from gateway.edge.asgi import AsgiClient
from gateway.edge.client import Client, ClientLeft, Headers, watched
from gateway.edge.pool import Pool
from gateway.edge.upstream import Connection, UpstreamError
from llmgw.machine import Machine

CONNECT_S = 2.0
HEAD_S = 120.0
FOREVER_S = 365 * 86400.0
"""Between two pieces of an answer: an event stream may be silent, and ends when either side leaves."""
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_FORGEABLE = (b"x-forwarded-", b"x-llmgw-")
_NOT_FORWARDED = frozenset({b"forwarded", b"x-real-ip", b"expect", b"content-length"})
_REPEATABLE = ("GET", "HEAD")


class Passthrough:
    """The way to web."""

    def __init__(self, machine: Machine) -> None:
        self._pool = Pool(path=machine.web_socket)
        url = urlsplit(machine.public_url)
        self._trusted = tuple(map(ip_network, machine.trusted_proxies))
        self._https_host = url.netloc.encode() if url.scheme == "https" else b""

    def sweep(self, now: float) -> None:
        self._pool.sweep(now)

    async def serve(self, client: AsgiClient, most: int) -> None:
        """One request. `most` bytes of body."""
        try:
            await self._serve(client, most)
        except TooLarge as e:
            await _page(client, 413, e.sentence)
        except ClientLeft:
            return
        except OSError:
            await _page(client, 503, "The portal is not running at the moment. Try again in a few seconds.")
        except UpstreamError:
            if client.opened:
                raise  # nothing can be said any more: breaking the connection is the truth
            await _page(client, 502, "The portal broke off its answer. Try again.")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not client.left or task is None:
                raise
            task.uncancel()

    async def _serve(self, client: AsgiClient, most: int) -> None:
        declared = client.header(b"content-length")
        if declared is not None and int(declared) > most:
            raise TooLarge(f"The request is larger than the limit of {most} bytes.")
        has_body = declared not in (None, b"0") or client.header(b"transfer-encoding") is not None
        while True:
            connection = await self._connection(client, has_body)
            try:
                await self._exchange(client, connection, has_body, most)
                return
            except UpstreamError as e:
                if not (e.stale and not has_body and not client.opened):
                    raise
            finally:
                connection.release()

    async def _connection(self, client: Client, has_body: bool) -> Connection:
        if client.method in _REPEATABLE and not has_body:
            kept = self._pool.take(asyncio.get_running_loop().time())
            if kept is not None:
                return kept
        return await self._pool.connect(CONNECT_S)

    async def _exchange(self, client: AsgiClient, connection: Connection, has_body: bool, most: int) -> None:
        loop = asyncio.get_running_loop()
        method = client.method
        declared = client.header(b"content-length")
        connection.send(self._head(client, declared if has_body else None, has_body), headless=method == "HEAD")
        if has_body:
            await _upload(client, connection, framed=declared is not None, most=most)
        elif not client.body_read:
            await client.piece()
        with watched(client):
            if not await connection.head(loop.time() + HEAD_S):
                await _page(client, 504, "The portal did not answer in time.")
                return
            headers = _to_client(connection)
            if method == "HEAD" or connection.status in (204, 304):
                await client.open(connection.status, headers)
                await client.close()
                return
            await client.open(connection.status, headers)
            while data := await connection.read(loop.time() + FOREVER_S):
                await client.send(data)
            await client.close()

    def _head(self, client: AsgiClient, length: bytes | None, has_body: bool) -> bytes:
        scope = client.scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        named = _named_in_connection(scope["headers"])
        lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target)]
        host = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            if name in _HOP or name in _NOT_FORWARDED or name in named or name.startswith(_FORGEABLE):
                continue
            lines.append(name + b": " + value)
        if not host:
            lines.append(b"host: localhost")
        peer = scope["client"][0] if scope.get("client") else ""
        found = origin(peer, scope["headers"], self._trusted)
        if found.address:
            lines.append(b"x-forwarded-for: " + found.address.encode())
        https = found.https if found.https is not None else bool(self._https_host) and host == self._https_host
        lines += [b"x-forwarded-proto: " + (b"https" if https else b"http"), b"x-forwarded-host: " + host]
        if length is not None:
            lines.append(b"content-length: " + length)
        elif has_body:
            lines.append(b"transfer-encoding: chunked")
        return b"\r\n".join(lines) + b"\r\n\r\n"


async def _upload(client: Client, connection: Connection, framed: bool, most: int) -> None:
    """The request's body as it comes; stops where web has answered already."""
    size, more = 0, True
    while more and not connection.got_head:
        data, more = await client.piece()
        size += len(data)
        if size > most:
            raise TooLarge(f"The request is larger than the limit of {most} bytes.")
        if data:
            await connection.write(data if framed else b"%x\r\n%b\r\n" % (len(data), data))
    if not more and not framed:
        await connection.write(b"0\r\n\r\n")


def _to_client(connection: Connection) -> Headers:
    named = _named_in_connection(connection.headers)
    return [(n, v) for n, v in connection.headers if n not in _HOP and n not in named and n not in (b"date", b"server")]


def _named_in_connection(headers: Headers) -> set[bytes]:
    return {token.strip().lower() for n, v in headers if n == b"connection" for token in v.split(b",")}


async def _page(client: Client, status: int, sentence: str) -> None:
    """One sentence, as the caller reads it best."""
    accept = client.header(b"accept") or b""
    headers: Headers = [(b"cache-control", b"no-store")]
    if status == 503:
        headers.append((b"retry-after", b"2"))
    if b"text/html" in accept:
        title = f"{status} {HTTPStatus(status).phrase}"
        body = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            '<meta name="viewport" content="width=device-width"><body style="font:1rem/1.5 system-ui;'
            'margin:4rem auto;max-width:34rem;padding:0 1rem;color-scheme:light dark">'
            f"<h1>{title}</h1><p>{html.escape(sentence)}</p>"
        ).encode()
        headers.append((b"content-type", b"text/html; charset=utf-8"))
    else:
        body = msgspec.json.encode(
            {"error": {"code": "portal_unavailable" if status >= 500 else "too_large", "message": sentence}}
        )
        headers.append((b"content-type", b"application/json"))
    await client.whole(status, headers, body)
