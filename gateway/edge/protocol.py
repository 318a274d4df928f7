"""A client's connection: uvicorn's HTTP protocol with the inference path taken out of ASGI.

uvicorn parses, keeps connections alive, queues pipelined requests, pauses and stops. Here a POST to an inference path
becomes a `DirectClient` and a task; every other request goes on to ASGI as before. Heads have limits, and no timer is
made for a request: one sweep a second looks at all connections.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.core import errors
from gateway.core.request import PATHS
from gateway.edge.again import Again
from gateway.edge.client import Headers
from gateway.edge.direct import DirectClient
from gateway.edge.exchange import Exchange

if TYPE_CHECKING:
    from gateway.edge.app import Edge

log = logging.getLogger(__name__)
IDLE_S = 75.0
"""Without a request, or for the head of one: longer than a proxy's 60 s, so that it is the proxy which closes."""
MOST_HEAD_BYTES = 64 * 1024
MOST_HEADERS = 100
MOST_QUEUED = 4
"""Pipelined requests, at which reading pauses. Until then a client that leaves is noticed at once."""
_ENDPOINTS = {path.encode(): endpoint for path, endpoint in PATHS.items()}
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _Head(NamedTuple):
    """What the head of an inference request said; `length_at`: where in `headers` the length of the body is."""

    endpoint: str
    path: str
    headers: Headers
    named: dict[bytes, bytes]
    length_at: int


class EdgeProtocol(HttpToolsProtocol):
    """The application must be an `Edge`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._edge: Edge = self.config.app  # type: ignore[assignment]
        self._serving: DirectClient | RequestResponseCycle | None = None
        self._reading: DirectClient | None = None
        """Whose body is coming in."""
        self._idle_since = self.loop.time()
        self._in_head = self._in_message = False
        self._head_bytes = 0
        self._again: Again[_Head] = Again()

    # -- the connection

    def data_received(self, data: bytes) -> None:
        begins = not self._in_message
        if begins and (length := self._again.length(data)) >= 0:
            self._take_again(data, length)
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as e:
            self._decline_upgrade(data[e.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self.send_400_response("")
        elif begins and not self._in_message and isinstance(self.cycle, DirectClient):
            self._keep_head(data, self.cycle)

    def send_400_response(self, msg: str) -> None:
        reading = self._reading
        if self._busy and (reading is None or reading is not self._serving or reading.opened):
            self.transport.close()  # an answer is under way: nothing may be written into it
        elif self._head_bytes > MOST_HEAD_BYTES or len(self.headers or ()) > MOST_HEADERS:
            self.transport.write(_TOO_LONG)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _decline_upgrade(self, rest: bytes) -> None:
        """The JDK's client asks for HTTP/2 with its first request. An upgrade may be passed over; but the parser stops
        there, so a new one is given the head again, without it."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("CONNECT is not for this server.")
            return
        closes = any(n == b"connection" and b"close" in v.lower() for n, v in self.headers)
        lines = [b"%b %b HTTP/1.1" % (method, self.url)]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] not in (b"upgrade", b"connection")]
        lines += [b"connection: close"] if closes else []
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        serving = self._serving
        if isinstance(serving, DirectClient):
            serving.lost()
        elif serving is not None and not serving.response_complete:  # uvicorn tells the newest one only
            serving.disconnected = True
            serving.message_event.set()

    def sweep(self, now: float) -> None:
        """Once a second."""
        if self._busy:
            if isinstance(self._serving, DirectClient):
                self._serving.sweep(now)
        elif now - self._idle_since > IDLE_S:
            self.transport.close()

    @property
    def _busy(self) -> bool:
        return self._serving is not None and not self._serving.response_complete

    # -- the parser

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._reading = None
        self._in_head = self._in_message = True
        self._head_bytes = 0
        self._idle_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.headers) > MOST_HEADERS:
            raise ValueError("too many headers")  # ends as a 431
        path = self.url.partition(b"?")[0]
        endpoint = _ENDPOINTS.get(path)
        parser = self.parser
        if parser.should_upgrade():
            return
        if endpoint is None or parser.get_method() != b"POST":
            self._through_asgi()
            return
        version, keep_alive = parser.get_http_version(), parser.should_keep_alive()
        client = DirectClient(self, endpoint, path.decode(), self.headers, version, keep_alive)
        self._reading = client
        self._begin(client)

    def _begin(self, client: DirectClient) -> None:
        """Now, or after those that came before it."""
        before, self.cycle = self.cycle, client  # type: ignore[assignment]
        if before is None or before.response_complete:
            self._start_asgi_task(client, self.app)
            return
        self.pipeline.appendleft((client, self.app))  # type: ignore[arg-type]
        if len(self.pipeline) >= MOST_QUEUED:
            self.flow.pause_reading()

    def _keep_head(self, data: bytes, client: DirectClient) -> None:
        """`client` is the last request that began in `data`: where it is the only one, its head may come again."""
        length, headers = client.size, client.headers
        told = client.header(b"content-length")
        if client.keep_alive and told is not None and client.header(b"expect") is None:
            head = _Head(client.endpoint, client.path, headers, client.named, headers.index((b"content-length", told)))
            self._again.keep(data, length, head)

    def _take_again(self, data: bytes, length: int) -> None:
        """A whole request with the head of the last one: past the parser, which stands between two messages."""
        self._again.known()
        head = self._again.value
        assert head is not None
        size = b"%d" % length
        headers, named = head.headers.copy(), head.named.copy()
        headers[head.length_at] = (b"content-length", size)
        named[b"content-length"] = size
        client = DirectClient(self, head.endpoint, head.path, headers, "1.1", True, named)
        self._begin(client)
        client.fed(data[len(data) - length :])
        client.fed_all()

    def on_body(self, body: bytes) -> None:
        if self._reading is not None:
            self._reading.fed(body)
        else:
            super().on_body(body)

    def body_passed_by(self) -> None:
        """The body came whole without the parser (`filling`): what follows is another request."""
        self.parser = httptools.HttpRequestParser(self)
        self._reading, self._in_message = None, False

    def on_message_complete(self) -> None:
        reading, self._reading, self._in_message = self._reading, None, False
        if reading is not None:
            reading.fed_all()
        elif not self.parser.should_upgrade():
            super().on_message_complete()

    def _through_asgi(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()  # makes the scope
        self.url = url
        self.expect_100_continue = any(n == b"expect" and v.lower() == b"100-continue" for n, v in headers)
        self.headers = self.scope["headers"] = headers
        super().on_headers_complete()

    # -- the answer

    def usual_lines(self) -> bytes:
        """Of every answer's head: uvicorn makes them anew each second, with the date."""
        state = self.server_state
        if _usual.headers is not state.default_headers:
            _usual.headers = state.default_headers
            _usual.lines = b"".join([b"%b: %b\r\n" % header for header in _usual.headers])
        return _usual.lines

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._serving = cycle
        if isinstance(cycle, DirectClient):
            cycle.task = self.loop.create_task(self._infer(cycle))
            self.tasks.add(cycle.task)
            return
        if cycle.scope["http_version"] == "1.0":
            app = _until_close(app, cycle)
        super()._start_asgi_task(cycle, app)

    async def _infer(self, client: DirectClient) -> None:
        try:
            await Exchange(self._edge, client, client.endpoint).run()
        except Exception:
            log.exception("an inference request failed")
            await client.refuse(errors.GatewayError("the gateway failed at this request: its log says why"), [])
        finally:
            self.tasks.discard(client.task)
            if not client.response_complete:
                self.transport.close()

    def on_response_complete(self) -> None:
        """uvicorn's, without its timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = self.loop.time()


class _Usual:
    """`lines` of `headers`."""

    headers: list[tuple[bytes, bytes]] | None = None
    lines = b""


_usual = _Usual()


def _until_close(app: Any, cycle: Any) -> Any:
    """A client of HTTP/1.0 gets no chunked framing, which it cannot read: the answer's body ends with its connection,
    unless its length is known."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        async def plain(message: Any) -> None:
            if message["type"] == "http.response.start":
                if not any(name == b"content-length" for name, _ in message.get("headers", ())):
                    cycle.chunked_encoding = False
            elif cycle.chunked_encoding is False and cycle.expected_content_length == 0:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, plain)

    return answered
