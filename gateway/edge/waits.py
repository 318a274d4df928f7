"""How long an attempt waits for its engine: the deadlines, and the comments that keep a silent stream open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.retry import Failure, Kind
from gateway.core.snapshot import Policies
from gateway.edge.client import KEEPALIVE, Headers
from gateway.edge.upstream import Connection

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange

AFTER_FINISH_S = 10.0
"""For what may follow the last `finish_reason`: the counts and `[DONE]`."""
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Waits:
    """Of one attempt."""

    __slots__ = (
        "_content_by",
        "_ends_at",
        "_exchange",
        "_keepalive_at",
        "_silence_ends",
        "_stream",
        "connection",
        "policies",
    )

    def __init__(self, exchange: Exchange, connection: Connection, policies: Policies) -> None:
        now = exchange.loop.time()
        self._exchange, self.connection, self.policies = exchange, connection, policies
        self._stream = exchange.request is not None and exchange.request.stream
        self._ends_at = now + policies.generation_timeout_s
        self._silence_ends = self._content_by = now + policies.header_timeout_s
        self._keepalive_at = now + policies.keepalive_s if self._stream else self._ends_at

    async def head(self) -> Failure | None:
        sent_by = self._exchange.loop.time() + self.policies.idle_timeout_s
        while True:
            deadline = min(self.deadline(), sent_by) if self.connection.sending else self.deadline()
            if await self.connection.head(deadline):
                return None
            if self.connection.sending and self._exchange.loop.time() >= sent_by:
                return Failure(Kind.SILENT, "the engine did not take the request in time")
            if (failure := await self.late()) is not None:
                return failure

    async def read(self) -> bytes | Failure:
        """The next bytes of the body, b"" at its end."""
        while True:
            data = await self.connection.read(self.deadline())
            if data is not None:
                self.heard()
                return data
            if (failure := await self.late()) is not None:
                return failure

    def heard(self, at: float = 0.0) -> float:
        """Something came, `at` that time of the loop's clock or now: the next deadline."""
        now, tally, policies = at or self._exchange.loop.time(), self._exchange.tally, self.policies
        idle_s = policies.idle_timeout_s
        if tally.finished and idle_s > AFTER_FINISH_S:
            idle_s = AFTER_FINISH_S
        ends = now + idle_s
        if self._stream:
            self._keepalive_at = now + policies.keepalive_s
            if not tally.content_sent and self._content_by > ends:  # a role or a comment is no sign of a prompt read
                ends = self._content_by
        self._silence_ends = ends
        return self.deadline()

    def deadline(self) -> float:
        first = self._keepalive_at if self._keepalive_at < self._silence_ends else self._silence_ends
        return first if first < self._ends_at else self._ends_at

    async def late(self) -> Failure | None:
        now = self._exchange.loop.time() + 0.001
        if now >= self._ends_at:
            return Failure(Kind.SILENT, f"the answer took longer than {self.policies.generation_timeout_s:g} seconds")
        if now >= self._silence_ends:
            return Failure(Kind.SILENT, "the engine said nothing for too long")
        if now >= self._keepalive_at:
            self._keepalive_at = now + self.policies.keepalive_s
            await open_stream(self._exchange)
            await self._exchange.client.send(KEEPALIVE)
        return None


async def open_stream(exchange: Exchange) -> None:
    """Status and headers, unless they are out already."""
    if not exchange.client.opened:
        await exchange.client.open(200, [*STREAM_HEADERS, *exchange.answer_headers()])
