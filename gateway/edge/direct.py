"""A client on its connection itself: an inference request without an ASGI server's messages, events and timers.

Measured, that is half of what a request costs an edge (docs/performance.md). `protocol` feeds it and tells it when
the client is gone; to the rest of uvicorn it looks like one of its own request-and-response cycles.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.edge.client import BODY_TIMEOUT_S, Client, ClientLeft, Headers, too_large, too_slow
from gateway.edge.filling import LEAST_BYTES, Filling

if TYPE_CHECKING:
    from gateway.edge.protocol import EdgeProtocol

HIGH_BYTES = 64 * 1024
"""Of a body that nobody has asked for yet: reading pauses."""
JOIN_BYTES = 64 * 1024
"""A smaller answer leaves in one piece with its headers."""


class DirectClient(Client):
    """`keep_alive`, `response_complete` and `disconnected` are read (and set) by uvicorn too."""

    __slots__ = (
        "_chunked",
        "_complete",
        "_expects",
        "_flow",
        "_late",
        "_opening",
        "_passed_by",
        "_pieces",
        "_protocol",
        "_room",
        "_transport",
        "_waiter",
        "_watched",
        "disconnected",
        "endpoint",
        "keep_alive",
        "message_event",
        "response_complete",
        "size",
        "task",
        "waits_since",
    )

    def __init__(
        self,
        protocol: EdgeProtocol,
        endpoint: str,
        path: str,
        headers: Headers,
        version: str,
        keep_alive: bool,
        named: dict[bytes, bytes] | None = None,
    ) -> None:
        super().__init__("POST", path, headers, named)
        self._protocol, self._flow, self._transport = protocol, protocol.flow, protocol.transport
        self.endpoint = endpoint
        self._chunked = version != "1.0"
        expects = self.header(b"expect")
        self._expects = expects is not None and expects.lower() == b"100-continue"
        self.keep_alive = keep_alive and self._chunked
        self.disconnected = self.response_complete = False
        self.message_event = _NOBODY_WAITS
        self._pieces: list[bytes] = []
        self.size = 0
        """Of what has come of the body and is not taken."""
        self._room = HIGH_BYTES
        """What may gather before it is taken, or else reading pauses."""
        self._complete = self._late = False
        self._waiter: asyncio.Future[None] | None = None
        self.waits_since = 0.0
        self._passed_by = False
        """The parser did not see all of the body."""
        self._watched = False
        self._opening = b""
        """The head of an opened answer, which leaves with its first piece."""
        self.task: asyncio.Task[None] | None = None
        """Which serves it."""

    # -- the protocol's side

    def fed(self, data: bytes) -> None:
        """A part of the body has come."""
        if self.response_complete:
            return
        self._pieces.append(data)
        self.size += len(data)
        self.waits_since = self._protocol.loop.time()
        if self.size > self._room:
            if self._waiter is not None:
                self._wake()
            else:
                self._protocol.flow.pause_reading()

    def fed_all(self) -> None:
        self._complete = True
        self._wake()

    def lost(self) -> None:
        """The connection is gone."""
        self.disconnected = True
        if self._watched and self.task is not None and not self.response_complete:
            self.left = True
            self.task.cancel()
        self._wake()

    def sweep(self, now: float) -> None:
        if self._waiter is not None and now - self.waits_since > BODY_TIMEOUT_S:
            self._late = True
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the exchange's side

    def at_hand(self, most: int) -> bytes | None:
        return self._taken() if self._complete and self.size <= most else None

    async def body(self, most: int) -> bytes:
        self._refuse_declared(most)
        self._room = most
        if not self._complete and self.size <= most:
            left = self._declared() - self.size
            if left >= LEAST_BYTES and not self.disconnected:
                return await self._filled(self.size + left)
            await self._more()
        if self.size > most:
            self._pieces.clear()
            raise too_large(most)
        return self._taken()

    def _declared(self) -> int:
        """The body's length in bytes, where it was told."""
        told = self.header(b"content-length")
        return 0 if told is None or self.header(b"transfer-encoding") is not None else int(told)

    async def _filled(self, size: int) -> bytes:
        """A body of `size` bytes, past the parser."""
        self._flow.pause_reading()
        filling = Filling(self._protocol, self, self._pieces, size)
        self._pieces, self._passed_by = [], True
        await self._more()
        self.body_read = True
        return filling.body()

    async def _drained(self) -> bool:
        """Never where the parser has lost its place."""
        return not self._passed_by and await super()._drained()

    async def piece(self) -> tuple[bytes, bool]:
        self._room = 0
        if not self._pieces and not self._complete:
            await self._more()
        return self._taken(), not self._complete

    def _taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        self.size = 0
        self.body_read = self._complete
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _more(self) -> None:
        """Until there is more than `_room`, or all."""
        protocol = self._protocol
        if self._expects and not self.disconnected:
            self._expects = False
            protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        protocol.flow.resume_reading()
        self.waits_since = protocol.loop.time()
        while self.size <= self._room and not self._complete:
            if self.disconnected:
                raise ClientLeft
            if self._late:
                raise too_slow()
            self._waiter = protocol.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def watch(self) -> None:
        if self.disconnected:
            raise ClientLeft
        self._watched = True

    def unwatch(self) -> None:
        self._watched = False

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        if not self.body_read or self._flow.write_paused:
            return False
        self.opened = True
        self._out(status, headers, body)
        return True

    async def _whole(self, status: int, headers: Headers, body: bytes, last: bool) -> None:
        if self._flow.write_paused:
            await self._flow.drain()
        self.keep_alive = self.keep_alive and not last
        self._out(status, headers, body)

    def _out(self, status: int, headers: Headers, body: bytes) -> None:
        head = self._head(status, headers, b"content-length: %d\r\n\r\n" % len(body))
        self._write([head + body] if len(body) < JOIN_BYTES else [head, body])
        self._end()

    async def open(self, status: int, headers: Headers) -> None:
        self.opened = True
        end = b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n"
        self._opening = self._head(status, headers, end)

    async def send(self, data: bytes) -> None:
        while not self.push(data):
            await self._protocol.flow.drain()

    def push(self, data: bytes, framed: bytes = b"") -> bool:
        if self._flow.write_paused:
            return False
        if data:
            self._piece((framed or b"%x\r\n%b\r\n" % (len(data), data)) if self._chunked else data)
        return True

    def _piece(self, data: bytes) -> None:
        opening, self._opening = self._opening, b""
        if not self.disconnected:
            self._transport.write(opening + data if opening else data)

    def passes_chunks(self) -> bool:
        return self._chunked and not self._opening

    def pass_on(self, chunk: bytes) -> bool:
        if self._flow.write_paused:
            return False
        if not self.disconnected:
            self._transport.write(chunk)
        return True

    async def close(self, data: bytes = b"") -> None:
        while self._flow.write_paused:
            await self._flow.drain()
        if self._chunked:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        self._piece(data)
        self._end()

    def _head(self, status: int, headers: Headers, end: bytes) -> bytes:
        lines = [b"%b: %b\r\n" % header for header in headers]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        return b"".join((STATUS_LINE[status], self._protocol.usual_lines(), *lines, end))

    def _write(self, pieces: list[bytes]) -> None:
        if not self.disconnected:
            self._transport.writelines(pieces) if len(pieces) > 1 else self._transport.write(pieces[0])

    def _end(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._protocol.transport.close()
        self._protocol.on_response_complete()


class _Event:
    """uvicorn sets a cycle's event when its client is gone; `lost` tells it here."""

    def set(self) -> None: ...


_NOBODY_WAITS = _Event()
