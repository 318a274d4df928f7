"""An engine's answer to the client: bytes as they come, with an eye on what they say.

Nothing reaches the client before there is content (or a long silence opens the stream), so that until then a
failed attempt can be made again.
"""

from __future__ import annotations

import contextlib
import re
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.core import chunk, errors, retry_after, sse, usage
from gateway.core.retry import Failure, Kind
from gateway.core.snapshot import Policies
from gateway.edge.client import KEEPALIVE, Headers
from gateway.edge.upstream import Connection, UpstreamError

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange

MOST_WHOLE_BYTES = 256 * 1024 * 1024
"""Of an answer that is not streamed."""
MOST_ERROR_BYTES = 1024 * 1024
READ_THROUGH_BYTES = 256 * 1024
"""Up to here a whole answer is checked to be JSON; of a longer one only its ends are looked at."""
AFTER_FINISH_S = 10.0
"""For what may follow the last `finish_reason`: the counts and `[DONE]`."""
AFTER_DONE_S = 0.25
"""For the engine to end its answer, so that its connection can be kept; nobody waits for it."""
_STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_DONE = b"data: [DONE]\n\n"
_LAST = b"}\n\n" + _DONE
_ENDED = b'finish_reason":"'
_ENDED_SPACED = b'finish_reason": "'
_MARKS = (usage.MARK, b"error", _ENDED, _ENDED_SPACED)
"""What makes an event worth a second look; the rest of a stream is passed on unread."""
_ERROR = re.compile(rb'\s*\{\s*"error"\s*:\s*[{"]')
_OWN_FAULT = (401, 403)
_AGAIN = (408, 429)
_SAYS_WHEN = (429, 503)


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
        "_content_by",
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
        self._silence_ends = self._content_by = now + policies.header_timeout_s
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
        now, tally = self._exchange.loop.time(), self._exchange.tally
        idle_ends = now + (
            min(self.policies.idle_timeout_s, AFTER_FINISH_S) if tally.finished else self.policies.idle_timeout_s
        )
        if self._stream:
            self._keepalive_at = now + self.policies.keepalive_s
            if not tally.content_sent:  # a role or a comment is no sign that the prompt has been read
                idle_ends = max(idle_ends, self._content_by)
        self._silence_ends = idle_ends
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
        "_ended",
        "_exchange",
        "_held",
        "_inflate",
        "_owed",
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
        self._twins = self._done = False
        assert exchange.request is not None
        self._wants_usage = exchange.request.wants_usage
        self._owed = b""
        self._ended: set[int] = set()
        self._tally.finished = False

    async def run(self) -> Failure | None:
        client, reader, tally, waits = self._exchange.client, self._reader, self._tally, self._waits
        read, deadline = waits.connection.read, waits.deadline()
        try:
            while True:
                data = await read(deadline)
                if data is None:
                    if (failure := await waits.late()) is not None:
                        return await self._close(b"") if tally.finished else failure
                    deadline = waits.deadline()
                    continue
                if not data:
                    return await self._end()
                block = reader.feed(self._inflate(data) if self._inflate is not None else data)
                if not block:
                    deadline = waits.heard()
                    continue
                if not tally.content_sent:
                    block = await self._until_content(block)
                else:
                    block = self._inspect(block)
                    tally.events += block.count(b"\n\n")
                if self._done:
                    return await self._close(block)
                deadline = waits.heard()
                if block:
                    await client.send(block)
        except UpstreamError as e:
            return await self._cut(str(e), e)
        except _Broken as e:
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
                raise _Broken(_reported(seen.error))
            if seen.garbage:
                raise _Broken(_GARBAGE)
            if seen.done:
                raise _Broken(Failure(Kind.RESET, "the engine ended the stream before it said anything"))
            self._twins = self._twins or seen.both_reasonings
            if seen.content:
                self._tally.content_sent = True
                self._tally.ttft_s = time.perf_counter() - self._exchange.began
                self._exchange.first_content()
            at = end
        self._held.append(block)
        if not self._tally.content_sent:
            if sum(map(len, self._held)) > sse.MOST_BYTES:
                raise sse.TooLong("too much came before any content")
            return b""
        try:
            block = self._inspect(b"".join(self._held))
        except _Broken:
            self._tally.content_sent = False  # nothing of it is out: it can be made again
            raise
        self._tally.events += max(1, block.count(b"\n\n", at))
        self._held.clear()
        client = self._exchange.client
        if not client.opened:
            await client.open(200, [*_STREAM_HEADERS, *self._exchange.answer_headers()])
        return block

    def _inspect(self, block: bytes) -> bytes:
        """Take what must not reach the client out of `block`; raises `_Broken` at an error. What lies before the
        first mark is passed as it is."""
        marked = [at for mark in _MARKS if (at := block.find(mark)) >= 0]
        if (odd := _odd(block)) >= 0:
            marked.append(odd)
        if not marked and not self._twins:
            return block
        start = 0 if self._twins else block.rfind(b"\n\n", 0, min(marked)) + 2
        start = start if start > 1 else 0
        kept = [block[:start]]
        for raw in sse.split(block[start:]):
            if self._done:
                break  # nothing may follow it
            try:
                kept.append(self._clean(raw))
            except chunk.BadEnding as e:
                raise _Broken(_gave_up(e), b"".join(kept)) from None
            except _Broken as e:
                e.before = b"".join(kept)
                raise
        return b"".join(kept)

    def _clean(self, raw: bytes) -> bytes:
        if _odd(raw) >= 0:
            data = sse.parse(raw).data
            if data is None:
                return raw
            if data.strip() == chunk.DONE:
                self._done = True
                return self._owed + raw
            if not chunk.is_object(data):
                raise _Broken(_GARBAGE)
        if _ENDED in raw or _ENDED_SPACED in raw:
            raw = chunk.mend_endings(raw)
            self._finish(raw)
        if usage.MARK in raw or b"error" in raw:
            event = sse.parse(raw)
            seen = chunk.look(event)
            if seen.error is not None:
                raise _Broken(_reported(seen.error))
            if event.data is not None and usage.MARK in event.data:
                if seen.usage is not None:
                    self._tally.usage = usage.of(seen.usage) or self._tally.usage
                if not self._wants_usage:
                    if seen.usage is not None and not seen.choices:
                        return b""
                    raw = _event(event.name, usage.without(event.data))
                elif seen.usage is not None:
                    raw = self._counted(event, seen.choices) or raw
        if self._twins and b'"reasoning_content"' in raw:
            event = sse.parse(raw)
            if event.data is not None:
                raw = _event(event.name, chunk.without_twin(event.data))
        return raw

    def _counted(self, event: sse.Event, choices: int) -> bytes:
        """For who asked for counts: they come once, last and alone, also where the engine puts them beside a choice.
        Empty where `event` may stay as it is."""
        assert self._exchange.request is not None and event.data is not None
        self._owed = b""
        if not choices or self._exchange.request.each_usage:
            return b""
        self._owed = _event(b"", chunk.counts_alone(event.data))
        return _event(event.name, usage.without(event.data))

    def _finish(self, raw: bytes) -> None:
        self._ended.update(chunk.look(sse.parse(raw)).ended)
        assert self._exchange.request is not None
        self._tally.finished = len(self._ended) >= self._exchange.request.choices

    async def _end(self) -> Failure | None:
        """The engine's stream ended in order, and without `[DONE]`."""
        rest, last = self._reader.rest.rstrip(b"\r\n"), b""
        if rest.strip():
            error = chunk.tail_error(rest)
            if error is not None:
                return _reported(error)
            data = sse.parse(rest).data
            if data is not None and (data.strip() == chunk.DONE or chunk.is_object(data)):  # else cut off in its middle
                last = await self._last(rest + b"\n\n")
        if self._done or self._tally.finished:
            return await self._close(last)
        return Failure(Kind.RESET, "the engine ended the stream before the end of its answer")

    async def _last(self, raw: bytes) -> bytes:
        """An event whose blank line never came, ended for it."""
        if self._tally.content_sent:
            return self._inspect(raw)
        return await self._until_content(raw)

    async def _close(self, last: bytes) -> Failure | None:
        """The answer is whole: out with its end. What the engine still says or holds open concerns nobody."""
        await self._exchange.client.close(last if self._done else last + self._owed + _DONE)
        connection = self._waits.connection
        if not connection.done:
            with contextlib.suppress(UpstreamError):
                await connection.read(self._exchange.loop.time() + AFTER_DONE_S)
        return None

    async def _cut(self, sentence: str, error: UpstreamError) -> Failure | None:
        """The connection broke: some engines leave a bare error behind."""
        found = chunk.tail_error(self._reader.rest)
        if found is not None:
            return _reported(found)
        if self._tally.finished:
            return await self._close(b"")
        if not self._tally.content_sent and error.stale:
            raise error
        return Failure(Kind.RESET, f"the engine failed in the middle of its answer: {sentence}")


class _Broken(Exception):
    """The stream must not go on. `before`: what came ahead of the fault and may be passed on."""

    def __init__(self, failure: Failure, before: bytes = b"") -> None:
        super().__init__(failure.sentence)
        self.failure = failure
        self.before = before


def _reported(error: chunk.EngineError) -> Failure:
    return Failure(Kind.REPORTED, f"the engine reported an error: {error.sentence}", error.code)


def _gave_up(ending: chunk.BadEnding) -> Failure:
    return Failure(Kind.REPORTED, f"the engine gave up on the answer (finish_reason {ending})", str(ending))


_GARBAGE = Failure(Kind.BAD_ANSWER, "the engine sent what is no part of an answer")


def _odd(block: bytes) -> int:
    """Where something begins that may not be an event of one line of JSON; -1 when all of `block` looks like that.
    Comments, `[DONE]`, other line ends and garbage are looked at one by one."""
    if not block.startswith(b"data: {"):
        return 0
    usual = block.count(b"}\n\ndata: {") + 1
    if block.endswith(b"}\n\n"):
        return -1 if block.count(b"\n\n") == usual else 0
    return len(block) - len(_DONE) if block.endswith(_LAST) and block.count(b"\n\n") == usual + 1 else 0


async def _whole(exchange: Exchange, waits: Waits, inflate: Callable[[bytes], bytes] | None) -> Failure | None:
    body = await _all(waits, inflate, MOST_WHOLE_BYTES)
    if isinstance(body, Failure):
        return body
    if _ERROR.match(body):
        return _reported(chunk.look(sse.Event(body)).error or chunk.error_of(None, body))
    connection, client, tally = waits.connection, exchange.client, exchange.tally
    kind = connection.header(b"content-type") or b"application/json"
    assert exchange.request is not None
    if exchange.request.stream:
        return Failure(Kind.BAD_ANSWER, "the engine answered a streamed request in one piece")
    if kind.startswith(b"text/event-stream") or not _is_answer(body, connection.framed):
        return _GARBAGE
    if b"finish_reason" in body:
        try:
            body = chunk.mend_endings(body)
        except chunk.BadEnding as e:
            return _gave_up(e)
    tally.usage = usage.find(body)
    if tally.usage is None or tally.usage.completion is None:
        tally.text_tokens = usage.estimate_answer(body)
    tally.content_sent = tally.finished = True
    await client.whole(connection.status, [(b"content-type", kind), *exchange.answer_headers()], body)
    return None


def _is_answer(body: bytes, framed: bool) -> bool:
    """Whether `body` is a JSON object. Only one whose length nothing told may have been cut short."""
    if len(body) <= READ_THROUGH_BYTES or not framed:
        return chunk.is_object(body)
    return body[:64].lstrip().startswith(b"{") and body[-64:].rstrip().endswith(b"}")


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
    wait = None
    if status in _SAYS_WHEN:
        say = waits.connection.header
        wait = retry_after.wait_s(say(b"retry-after"), say(b"date"), say(b"retry-after-ms"), now=time.time())
    sentence = f"the engine answered with status {status}: {error.sentence}"
    return Failure(Kind.STATUS, sentence, str(status), status, wait)


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
