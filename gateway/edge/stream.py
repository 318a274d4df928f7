"""A streamed answer to the client: blocks of whole events as they come.

Nothing reaches the client before there is content (or a long silence opens the stream), so that until then a
failed attempt can be made again. From then on each piece goes from the engine's socket to the client's within the
read that brought it; the task wakes for the end, for a client that does not keep up, and for what is amiss.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.core import chunk, sse
from gateway.core.retry import Failure, Kind
from gateway.core.sieve import DONE, GARBAGE, Broken, Sieve, reported
from gateway.edge.upstream import UpstreamError
from gateway.edge.waits import Waits, open_stream

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange


class Stream:
    """A streamed answer."""

    __slots__ = (
        "_capture",
        "_client",
        "_exchange",
        "_gaps",
        "_heard_at",
        "_held",
        "_inflate",
        "_mould",
        "_reader",
        "_ready",
        "_sieve",
        "_tally",
        "_waits",
    )

    def __init__(self, exchange: Exchange, waits: Waits, inflate: Callable[[bytes], bytes] | None) -> None:
        self._exchange, self._waits, self._inflate = exchange, waits, inflate
        self._reader = sse.Reader()
        self._tally = exchange.tally
        self._capture = exchange.capture
        self._held: list[bytes] = []
        self._ready = b""
        self._client = exchange.client
        request = exchange.request
        assert request is not None
        self._sieve = Sieve(request.wants_usage, request.each_usage, request.choices)
        self._mould = self._sieve.mould
        self._tally.finished = False
        self._gaps = exchange.edge.metrics.gaps(exchange.known().name)
        self._heard_at = 0.0

    async def run(self) -> Failure | None:
        try:
            failure = await self._begin()
            return failure if failure is not None else await self._pass_on()
        except UpstreamError as broken:
            return await self._cut(str(broken), broken)
        except Broken as fault:
            if fault.before and self._tally.content_sent:
                await self._exchange.client.send(fault.before)
            return fault.failure
        except (sse.TooLong, zlib.error) as e:
            return Failure(Kind.BAD_ANSWER, f"the engine's stream cannot be passed on: {e}")

    async def _begin(self) -> Failure | None:
        """Until the first content is in `_ready`, or the stream ended without any."""
        waits, tally = self._waits, self._tally
        deadline = waits.deadline()
        while not tally.content_sent:
            data = await waits.connection.read(deadline)
            if data is None:
                if (failure := await waits.late()) is not None:
                    return failure
                deadline = waits.deadline()
                continue
            if not data:
                break
            block = self._reader.feed(self._inflate(data) if self._inflate is not None else data)
            if block:
                self._ready = await self._until_content(block)
            deadline = waits.heard()
        return None

    async def _pass_on(self) -> Failure | None:
        waits, connection, deadline = self._waits, self._waits.connection, self._waits.deadline()
        as_it_came = self._inflate is None and self._capture is None
        self._heard_at = time.monotonic()
        while True:
            ready, self._ready = self._ready, b""
            if self._sieve.done:
                return await self._close(ready)
            if ready:
                if self._capture is not None:
                    self._capture.add(ready)
                await self._exchange.client.send(ready)
            if connection.ended:
                return await self._end()
            heard_at = self._heard_at
            straight = self._straight if as_it_came and self._client.passes_chunks() else None
            if await connection.pour(self._take, deadline, straight):
                deadline = waits.heard()
            elif self._heard_at != heard_at:
                deadline = waits.heard(self._heard_at)
            elif (failure := await waits.late()) is not None:
                return await self._close(b"") if self._tally.finished else failure
            else:
                deadline = waits.deadline()

    def _straight(self, data: bytes) -> bool:
        """For what may be an HTTP chunk with an event like those before it: whether it was, and is on its way to the
        client."""
        chunk = self._mould.chunk(data)
        if chunk is None or self._reader.kept or not self._client.pass_on(chunk):
            return False
        now = time.monotonic()
        self._gaps.append(now - self._heard_at)
        self._heard_at = now
        self._tally.events += 1
        return True

    def _take(self, data: bytes, framed: bytes) -> bool:
        """A piece of the body, to the client at once, in the HTTP chunk that it came in (`framed`) where nothing of it
        changes. False where the task must wake: what is left to be sent lies in `_ready`."""
        if self._inflate is not None:
            data, framed = self._inflate(data), b""
        now = time.monotonic()
        self._gaps.append(now - self._heard_at)
        self._heard_at = now
        tally, reader, sieve = self._tally, self._reader, self._sieve
        finished = sieve.finished
        if not reader.kept and (block := self._mould.cast(data)) is not None:
            tally.events += 1
        else:
            block = reader.feed(data)
            if not block:
                return True
            block = self._sift(block)
            tally.events += sieve.events
        if sieve.done or not self._client.push(block, framed if block is data else b""):
            self._ready = block
            return False
        if self._capture is not None:
            self._capture.add(block)
        if sieve.finished != finished:  # what may still follow has a limit of its own
            self._waits.connection.expect_by(self._waits.heard(now))
        return True

    async def _until_content(self, block: bytes) -> bytes:
        """Hold events until one has content; then open the answer and let go of all of them."""
        at = silent = 0
        while at < len(block) and not self._tally.content_sent:
            silent += 1
            end = sse.end_of_first(block, at)
            event = block[at:end]
            seen = chunk.look(sse.parse(event))
            if seen.error is not None:
                raise Broken(reported(seen.error))
            if seen.garbage:
                raise Broken(GARBAGE)
            if seen.done:
                raise Broken(Failure(Kind.RESET, "the engine ended the stream before it said anything"))
            self._sieve.twins = self._sieve.twins or seen.both_reasonings
            if seen.content:
                self._tally.content_sent = True
                self._tally.ttft_s = time.perf_counter() - self._exchange.began
                self._exchange.first_content()
                if event == block and not self._held and (left := self._sieve.first(event, seen)) is not None:
                    self._tally.events += 1
                    await open_stream(self._exchange)
                    return left
            at = end
        self._held.append(block)
        if not self._tally.content_sent:
            if sum(map(len, self._held)) > sse.MOST_BYTES:
                raise sse.TooLong("too much came before any content")
            return b""
        try:
            block = self._sift(b"".join(self._held))
        except Broken:
            self._tally.content_sent = False  # nothing of it is out: it can be made again
            raise
        self._tally.events += max(1, self._sieve.events - silent)
        self._held.clear()
        await open_stream(self._exchange)
        return block

    def _sift(self, block: bytes) -> bytes:
        sieve, tally = self._sieve, self._tally
        try:
            return sieve.sift(block)
        finally:
            tally.finished = sieve.finished
            if sieve.usage is not None:
                tally.usage, tally.counts = sieve.usage, sieve.counts

    async def _end(self) -> Failure | None:
        """The engine's stream ended in order, and without `[DONE]`."""
        rest, last = self._reader.rest.rstrip(b"\r\n"), b""
        if rest.strip():
            error = chunk.tail_error(rest)
            if error is not None:
                return reported(error)
            data = sse.parse(rest).data
            if data is not None and (data.strip() == chunk.DONE or chunk.is_object(data)):  # else cut off in its middle
                last = await self._last(rest + b"\n\n")
        if self._sieve.done or self._tally.finished:
            return await self._close(last)
        return Failure(Kind.RESET, "the engine ended the stream before the end of its answer")

    async def _last(self, raw: bytes) -> bytes:
        """An event whose blank line never came, ended for it."""
        if self._tally.content_sent:
            return self._sift(raw)
        return await self._until_content(raw)

    async def _close(self, last: bytes) -> Failure | None:
        """The answer is whole: out with its end. What the engine still says or holds open concerns nobody."""
        last = last if self._sieve.done else last + self._sieve.owed + DONE
        if self._capture is not None:
            self._capture.add(last)
        await self._exchange.client.close(last)
        self._waits.connection.ending = True
        return None

    async def _cut(self, sentence: str, error: UpstreamError) -> Failure | None:
        """The connection broke: some engines leave a bare error behind."""
        found = chunk.tail_error(self._reader.rest)
        if found is not None:
            return reported(found)
        if self._tally.finished:
            return await self._close(b"")
        if not self._tally.content_sent and error.stale:
            raise error
        return Failure(Kind.RESET, f"the engine failed in the middle of its answer: {sentence}")
