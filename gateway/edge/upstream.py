"""A small HTTP/1.1 client: one asyncio protocol over httptools, kept connections, reads coalesced, back-pressure.

Measured against the general clients it costs a fraction of a request's CPU (docs/performance.md). One exchange at a
time on a connection; every wait has a deadline, so no timer is made for a chunk; and what is only to be passed on is
handed over within the read itself (`pour`), so that no task wakes for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools

from gateway.edge import peers
from gateway.edge.answer import Answer

if TYPE_CHECKING:
    from gateway.edge.pool import Pool

HIGH_BYTES = 256 * 1024
"""Unread bytes at which reading from the other side pauses."""
MOST_HEADER_BYTES = 64 * 1024
ENDING_S = 0.25
"""For the end of an answer of which no more is wanted, so that its connection can be kept."""
UNANSWERED = f"its machine has not answered anything for {peers.SILENT_S:.0f} s"

Take = Callable[[bytes, bytes], bool]
Straight = Callable[[bytes], bool]
"""Both: see `Connection.pour`."""


class UpstreamError(Exception):
    """The other side broke the connection or the protocol. `stale`: before a byte came, on a kept connection."""

    def __init__(self, sentence: str, stale: bool = False) -> None:
        super().__init__(sentence)
        self.stale = stale


class Connection(Answer, asyncio.Protocol):
    """Send one request, read one answer, give it back to its pool."""

    __slots__ = (
        "_broken",
        "_deadline",
        "_expired",
        "_got_byte",
        "_header_bytes",
        "_lingering",
        "_loop",
        "_paused",
        "_pool",
        "_straight",
        "_take",
        "_timer",
        "_transport",
        "_used",
        "_waiter",
        "_writer",
        "ending",
        "idle_since",
        "sending",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Pool) -> None:
        super().__init__()
        self._loop, self._pool = loop, pool
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._expired = False
        self._used = False
        self._take: Take | None = None
        self._straight: Straight | None = None
        self.idle_since = 0.0
        self.sending = False
        self._begin(False)

    def _begin(self, headless: bool) -> None:
        self.begin(headless)
        self._broken: UpstreamError | None = None
        self._got_byte = self._paused = self._lingering = False
        self._header_bytes = 0
        self.ending = False
        """Set by the caller that has all it wants and expects nothing but the answer's end."""

    # -- the caller's side

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes = b"", headless: bool = False) -> None:
        """Begin an exchange. `headless`: the answer has no body whatever its headers say (HEAD)."""
        self._begin(headless)
        if self._transport is None:
            self._broken = UpstreamError("the connection is closed", stale=self._used)
        elif len(body) > 16384:
            self._transport.writelines([head, body])
        else:
            self._transport.write(head + body)

    async def write(self, data: bytes) -> None:
        """More of the request's body; waits while the other side does not take it."""
        if self._transport is None or self._broken is not None:
            return
        self._transport.write(data)
        if self.sending and not self.got_head:
            self._writer = self._loop.create_future()
            await self._writer

    async def head(self, deadline: float) -> bool:
        """Wait for status and headers; False when the loop's clock passed `deadline`. Raises `UpstreamError`."""
        while not self.got_head:
            if self._broken is not None:
                raise self._broken
            self._arm(deadline)
            self._waiter = waiter = self._loop.create_future()
            await waiter
            if self._expired:
                return False
        return True

    async def read(self, deadline: float) -> bytes | None:
        """All of the body that has arrived, b"" at its end; None when the clock passed `deadline`."""
        while True:
            if self._buffer:
                return self._taken()
            if self.done:
                return b""
            if self._broken is not None:
                raise self._broken
            self._arm(deadline)
            self._waiter = waiter = self._loop.create_future()
            await waiter
            if self._expired:
                return None

    async def pour(self, take: Take, deadline: float, straight: Straight | None = None) -> bool:
        """Hand each piece of the body to `take` the moment it comes, and where it came as one HTTP chunk, that as well
        (`b""`: it did not), while the caller sleeps: until `take` returns False or raises, or the body ends. What may
        be a whole HTTP chunk goes to `straight` before all else, and where that returns True, nowhere else. False when
        the clock passed `deadline`, which the caller puts off by when it was last handed something."""
        if self._buffer and not take(self._taken(), b""):
            return True
        if self.done:
            return True
        if self._broken is not None:
            raise self._broken
        self._arm(deadline)
        self._take, self._straight = take, straight
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._take = self._straight = None
        return not self._expired

    def expect_by(self, deadline: float) -> None:
        """While it is poured: another deadline from now on."""
        self._arm(deadline)

    def whole(self) -> bytes | None:
        """All of the body, where it has come: as it does with the head of a short answer."""
        return self._taken() if self.done and self._broken is None else None

    @property
    def ended(self) -> bool:
        """Whether all of the body has been taken."""
        return self.done and not self._buffer

    def _taken(self) -> bytes:
        buffer = self._buffer
        data = buffer[0] if len(buffer) == 1 else b"".join(buffer)
        self._buffer = []
        self._size = 0
        if self._paused:
            self._paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        return data

    def release(self) -> None:
        """The exchange is over: keep the connection when its answer was read to the end (or is about to end), else
        break it, which is how an engine learns that nobody waits."""
        if self.done and self._keep and not self.sending and self.usable:
            self._used = True
            self._pool.keep(self)  # with its timer, which the next exchange moves only if it comes too late
            return
        self._disarm()
        if self.ending and not self.done and not self.sending and self.usable:
            self._lingering = True
            self._timer = self._loop.call_later(ENDING_S, self.abort)
        else:
            self.abort()

    def rests(self) -> None:
        self.idle_since = self._loop.time()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self) -> None:
        if self._transport is not None:
            peers.watch(self._transport.get_extra_info("socket"))

    def look(self) -> None:
        """Break it where nobody is left at its other end."""
        if self._transport is not None and peers.gone(self._transport.get_extra_info("socket")):
            self._broken = UpstreamError(UNANSWERED)
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _arm(self, deadline: float) -> None:
        """One timer serves many waits: it is moved only when it comes too late."""
        self._deadline = deadline
        self._expired = False
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() >= self._deadline - 0.001:
            self._expired = True
            self._wake()
        else:
            self._timer = self._loop.call_at(self._deadline, self._time_is_up)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone
        self._transport.set_write_buffer_limits(high=65536, low=0)

    def data_received(self, data: bytes) -> None:
        straight = self._straight
        if straight is not None and self._between:
            try:
                if straight(data):
                    return
            except Exception as e:  # whatever it is: it is for the task, and not for the event loop's log
                self._fails(e)
                return
        if self._between and self._take is not None:
            size, _, rest = data.partition(b"\r\n")  # one whole chunk, as nearly always: the parser need not see it
            length = len(rest) - 2
            if length > 0 and rest[-2:] == b"\r\n" and (size == b"%x" % length or size == b"%X" % length):
                self._hand(rest[:-2], data)
                return
        if self.done:  # more than one answer, or one to nothing
            self.abort()
            return
        begins, self._got_byte = not self._got_byte, True
        if begins and not self._headless and (length := self._pool.again.length(data)) >= 0:
            self._take_again(data, length)
            return
        if not self.got_head:
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES + HIGH_BYTES:
                self._broken = UpstreamError("the answer's headers are too long")
                self.abort()
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self._broken is None:
                self._broken = UpstreamError(self.fault or "the answer was no HTTP/1.1")
            self.abort()
        self._between = self._between and data.endswith(b"\n\r\n")  # which no line with a chunk's size does
        if self._take is not None:
            if self._buffer:
                self._hand(self._taken(), b"")
            if self.done or self._broken is not None:
                self._wake()
        elif begins and self.done and self._keep and self.status == 200 and b"content-length" in self._named:
            self._pool.again.keep(data, self._size, self.headers)
            self._wake()
        elif self._waiter is not None and (self._buffer or self.done or self.got_head or self._broken):
            self._wake()
        if self._lingering and self.done:
            self._lingering = False
            self._disarm()
            self.release()
            return
        if self._size > HIGH_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _take_again(self, data: bytes, length: int) -> None:
        """A whole answer with the head of an earlier one: past the parser, which stands between two messages."""
        again = self._pool.again
        again.known()
        assert again.value is not None
        self.status = 200
        self.headers = [(n, b"%d" % length if n == b"content-length" else v) for n, v in again.value]
        self._named = dict(self.headers)
        self._framed = self.got_head = self.done = True
        self._buffer.append(data[len(data) - length :])
        self._size = length
        self._wake()

    def _hand(self, piece: bytes, chunk: bytes) -> None:
        assert self._take is not None
        try:
            if self._take(piece, chunk):
                return
            self._take = self._straight = None
            self._wake()
        except Exception as e:
            self._fails(e)

    def _fails(self, e: Exception) -> None:
        self._take = self._straight = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(e)
        self._waiter = None

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._keep = False
        self._disarm()
        if not self.done and self.got_head and not self._framed and exc is None:
            self.done = True  # a body that ends with its connection
        if not self.done and self._broken is None:
            if isinstance(exc, TimeoutError):  # by the kernel: `peers.watch`
                self._broken = UpstreamError(UNANSWERED)
            else:
                stale = self._used and not self._got_byte
                self._broken = UpstreamError("the connection was closed before the answer's end", stale)
        self.resume_writing()
        self._wake()
        self._pool.forget(self)

    def pause_writing(self) -> None:
        self.sending = True

    def resume_writing(self) -> None:
        self.sending = False
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)
        self._writer = None
