"""An engine's answer to the client: bytes as they come, with an eye on what they say.

Nothing reaches the client before there is content (or a long silence opens the stream), so that until then a
failed attempt can be made again.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.core import chunk, errors, sse, usage
from gateway.core.retry import Failure, Kind
from gateway.core.snapshot import Policies
from gateway.edge.client import KEEPALIVE, Headers
from gateway.edge.upstream import Connection, UpstreamError

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange

MOST_WHOLE_BYTES = 256 * 1024 * 1024
"""Of an answer that is not streamed."""
MOST_ERROR_BYTES = 1024 * 1024
_STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_DONE = b"data: [DONE]\n\n"
_ENDED = b'finish_reason":"'
_ENDED_SPACED = b'finish_reason": "'
_MARKS = (usage.MARK, b"error", _ENDED, _ENDED_SPACED)
"""What makes an event worth a second look; the rest of a stream is passed on unread."""
_OWN_FAULT = (401, 403)
_AGAIN = (408, 429)


class Tally:
    """What was seen of an answer, across attempts."""

    __slots__ = ("content_sent", "events", "finished", "last_s", "text_tokens", "ttft_s", "usage")

    def __init__(self) -> None:
        self.content_sent = False
        self.usage: usage.Usage | None = None
        self.events = 0
        """Events with content, which is about a token each."""
        self.text_tokens = 0
        self.ttft_s: float | None = None
        self.finished = False

    def estimated(self) -> int:
        return self.events or self.text_tokens


async def relay(exchange: Exchange, connection: Connection, policies: Policies) -> Failure | None:
    """The answer on `connection` to the client; None when it is out whole. Raises `UpstreamError`."""
    waits = Waits(exchange, connection, policies)
    failure = await waits.head()
    if failure is not None:
        return failure
    inflate = _inflater(connection)
    if not 200 <= connection.status < 300:
        return await _refused(waits, inflate)
    assert exchange.request is not None
    if exchange.request.stream and connection.header(b"content-type").startswith(b"text/event-stream"):
        return await Stream(exchange, waits, inflate).run()
    return await _whole(exchange, waits, inflate)


class Waits:
    """Deadlines of one attempt, and the comments that keep a silent stream open."""

    __slots__ = (
        "_ends_at",
        "_exchange",
        "_heard",
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
        self._silence_ends = now + policies.header_timeout_s
        self._keepalive_at = now + policies.keepalive_s if self._stream else self._ends_at
        self._heard = False

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

    def heard(self) -> float:
        """Something came: the next deadline."""
        now = self._exchange.loop.time()
        self._silence_ends = now + self.policies.idle_timeout_s
        if self._stream:
            self._keepalive_at = now + self.policies.keepalive_s
        return self.deadline()

    def deadline(self) -> float:
        return min(self._silence_ends, self._keepalive_at, self._ends_at)

    async def late(self) -> Failure | None:
        now = self._exchange.loop.time() + 0.001
        if now >= self._ends_at:
            return Failure(Kind.SILENT, f"the answer took longer than {self.policies.generation_timeout_s:g} seconds")
        if now >= self._silence_ends:
            return Failure(Kind.SILENT, "the engine said nothing for too long")
        if now >= self._keepalive_at:
            self._keepalive_at = now + self.policies.keepalive_s
            client = self._exchange.client
            if not client.opened:
                await client.open(200, [*_STREAM_HEADERS, *self._exchange.answer_headers()])
            await client.send(KEEPALIVE)
        return None


class Stream:
    """A streamed answer."""

    __slots__ = (
        "_done",
        "_exchange",
        "_held",
        "_inflate",
        "_newest",
        "_reader",
        "_tally",
        "_twins",
        "_waits",
        "_wants_usage",
    )

    def __init__(self, exchange: Exchange, waits: Waits, inflate: Callable[[bytes], bytes] | None) -> None:
        self._exchange, self._waits, self._inflate = exchange, waits, inflate
        self._reader = sse.Reader()
        self._tally = exchange.tally
        self._held: list[bytes] = []
        self._newest = b""
        self._twins = self._done = False
        assert exchange.request is not None
        self._wants_usage = exchange.request.wants_usage

    async def run(self) -> Failure | None:
        client, reader, tally, waits = self._exchange.client, self._reader, self._tally, self._waits
        read, deadline = waits.connection.read, waits.deadline()
        try:
            while True:
                data = await read(deadline)
                if data is None:
                    if (failure := await waits.late()) is not None:
                        return failure
                    deadline = waits.deadline()
                    continue
                if not data:
                    return await self._end()
                deadline = waits.heard()
                block = reader.feed(self._inflate(data) if self._inflate is not None else data)
                if not block:
                    continue
                if not tally.content_sent:
                    block = await self._until_content(block)
                else:
                    block = self._inspect(block)
                    tally.events += block.count(b"\n\n")
                if block:
                    self._newest = block
                    await client.send(block)
        except UpstreamError as e:
            return self._cut(str(e), e)
        except _Reported as e:
            if e.before and tally.content_sent:
                await client.send(e.before)
            return e.failure
        except (sse.TooLong, zlib.error) as e:
            return Failure(Kind.BAD_ANSWER, f"the engine's stream cannot be passed on: {e}")

    async def _until_content(self, block: bytes) -> bytes:
        """Hold events until one has content; then open the answer and let go of all of them."""
        at = 0
        while at < len(block) and not self._tally.content_sent:
            end = sse.end_of_first(block, at)
            seen = chunk.look(sse.parse(block[at:end]))
            if seen.error is not None:
                raise _Reported(seen.error)
            self._twins = self._twins or seen.both_reasonings
            if seen.content or seen.done:
                self._tally.content_sent = True
                self._tally.ttft_s = time.perf_counter() - self._exchange.began
            at = end
        self._held.append(block)
        if not self._tally.content_sent:
            if sum(map(len, self._held)) > sse.MOST_BYTES:
                raise sse.TooLong("too much came before any content")
            return b""
        try:
            block = self._inspect(b"".join(self._held))
        except _Reported:
            self._tally.content_sent = False  # nothing of it is out: it can be made again
            raise
        self._tally.events += max(1, block.count(b"\n\n", at))
        self._held.clear()
        client = self._exchange.client
        if not client.opened:
            await client.open(200, [*_STREAM_HEADERS, *self._exchange.answer_headers()])
        return block

    def _inspect(self, block: bytes) -> bytes:
        """Take what must not reach the client out of `block`; raises `_Reported` at an error. What lies before the
        first mark is passed as it is."""
        marked = [at for mark in _MARKS if (at := block.find(mark)) >= 0]
        if not marked and not self._twins:
            return block
        start = 0 if self._twins else block.rfind(b"\n\n", 0, min(marked)) + 2
        start = start if start > 1 else 0
        kept = [block[:start]]
        for raw in sse.split(block[start:]):
            try:
                kept.append(self._clean(raw))
            except chunk.BadEnding as e:
                error = chunk.EngineError(f"the engine gave up on the answer (finish_reason {e})", str(e))
                raise _Reported(error, b"".join(kept)) from None
            except _Reported as e:
                e.before = b"".join(kept)
                raise
        return b"".join(kept)

    def _clean(self, raw: bytes) -> bytes:
        if b"[DONE]" in raw and sse.parse(raw).data == chunk.DONE:
            self._done = True
            return raw
        if _ENDED in raw or _ENDED_SPACED in raw:
            self._tally.finished = True
            raw = chunk.mend_endings(raw)
        if usage.MARK in raw or b"error" in raw:
            event = sse.parse(raw)
            seen = chunk.look(event)
            if seen.error is not None:
                raise _Reported(seen.error)
            if event.data is not None and usage.MARK in event.data:
                if seen.usage is not None:
                    self._tally.usage = usage.of(seen.usage) or self._tally.usage
                if not self._wants_usage:
                    if seen.usage is not None and not seen.choices:
                        return b""
                    raw = _event(event.name, usage.without(event.data))
        if self._twins and b'"reasoning_content"' in raw:
            event = sse.parse(raw)
            if event.data is not None:
                raw = _event(event.name, chunk.without_twin(event.data))
        return raw

    async def _end(self) -> Failure | None:
        """The engine's stream ended in order."""
        client, tally, rest = self._exchange.client, self._tally, self._reader.rest
        self._done = self._done or self._newest.rstrip().endswith(chunk.DONE)
        last = b""
        if rest.strip():
            error = chunk.tail_error(rest)
            if error is not None:
                return _Reported(error).failure
            last = await self._last(rest.rstrip(b"\r\n") + b"\n\n")
        if not self._done and not tally.finished:
            return Failure(Kind.RESET, "the engine ended the stream before the end of its answer")
        if not tally.content_sent:  # an answer of nothing is an answer
            tally.content_sent = True
            if not client.opened:
                await client.open(200, [*_STREAM_HEADERS, *self._exchange.answer_headers()])
            last = b"".join(self._held) + last
        await client.close(last if self._done else last + _DONE)
        return None

    async def _last(self, raw: bytes) -> bytes:
        """An event whose blank line never came, ended for it."""
        if self._tally.content_sent:
            return self._inspect(raw)
        return await self._until_content(raw)

    def _cut(self, sentence: str, error: UpstreamError) -> Failure:
        """The connection broke: some engines leave a bare error behind."""
        found = chunk.tail_error(self._reader.rest)
        if found is not None:
            return _Reported(found).failure
        if not self._tally.content_sent and error.stale:
            raise error
        return Failure(Kind.RESET, f"the engine failed in the middle of its answer: {sentence}")


class _Reported(Exception):
    """The engine said in-band that it failed. `before`: what came ahead of it and may be passed on."""

    def __init__(self, error: chunk.EngineError, before: bytes = b"") -> None:
        super().__init__(error.sentence)
        self.failure = Failure(Kind.REPORTED, f"the engine reported an error: {error.sentence}", error.code)
        self.before = before


async def _whole(exchange: Exchange, waits: Waits, inflate: Callable[[bytes], bytes] | None) -> Failure | None:
    body = await _all(waits, inflate, MOST_WHOLE_BYTES)
    if isinstance(body, Failure):
        return body
    if body.startswith(b'{"error"'):
        return _Reported(chunk.look(sse.Event(body)).error or chunk.error_of(None, body)).failure
    tally = exchange.tally
    if b"finish_reason" in body:
        try:
            body = chunk.mend_endings(body)
        except chunk.BadEnding as e:
            return Failure(Kind.REPORTED, f"the engine gave up on the answer (finish_reason {e})", str(e))
    tally.usage = usage.find(body)
    if tally.usage is None or tally.usage.completion is None:
        tally.text_tokens = usage.estimate_answer(body)
    tally.content_sent = tally.finished = True
    client = exchange.client
    if client.opened:
        error = errors.EngineFailed("the engine answered a streamed request in one piece")
        await client.close(error.event())
        return None
    kind = waits.connection.header(b"content-type") or b"application/json"
    await client.whole(waits.connection.status, [(b"content-type", kind), *exchange.answer_headers()], body)
    return None


async def _refused(waits: Waits, inflate: Callable[[bytes], bytes] | None) -> Failure | None:
    """An answer that is an error: the caller's own (passed on once, raised) or the engine's (a failure)."""
    status = waits.connection.status
    body = await _all(waits, inflate, MOST_ERROR_BYTES)
    if isinstance(body, Failure):
        return body
    if status in _OWN_FAULT:
        return Failure(Kind.STATUS, "the engine refused the gateway's own key", "engine_unauthorized", status)
    error = errors.from_engine(status, body)
    if 400 <= status < 500 and status not in _AGAIN:
        raise error
    return Failure(Kind.STATUS, f"the engine answered with status {status}: {error.sentence}", str(status), status)


async def _all(waits: Waits, inflate: Callable[[bytes], bytes] | None, most: int) -> bytes | Failure:
    pieces: list[bytes] = []
    size = 0
    while True:
        data = await waits.read()
        if isinstance(data, Failure):
            return data
        if not data:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if inflate is not None:
            try:
                data = inflate(data)
            except zlib.error:
                return Failure(Kind.BAD_ANSWER, "the engine's answer cannot be decompressed")
        pieces.append(data)
        size += len(data)
        if size > most:
            return Failure(Kind.BAD_ANSWER, f"the engine's answer is larger than {most} bytes")


def _inflater(connection: Connection) -> Callable[[bytes], bytes] | None:
    """For an engine that compresses although nobody asked it to."""
    encoding = connection.header(b"content-encoding")
    if encoding in (b"", b"identity"):
        return None
    return zlib.decompressobj(47).decompress  # gzip and zlib alike


def _event(name: bytes, data: bytes) -> bytes:
    return (b"event: %b\n" % name if name else b"") + b"data: " + data + b"\n\n"
