"""An engine's answer to the client: refused, whole, or a stream."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.core import chunk, errors, retry_after, sse, usage
from gateway.core.retry import Failure, Kind
from gateway.core.sieve import GARBAGE, gave_up, reported
from gateway.core.snapshot import Policies
from gateway.edge.client import Headers
from gateway.edge.stream import Stream
from gateway.edge.upstream import Connection
from gateway.edge.waits import Waits

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange

MOST_WHOLE_BYTES = 256 * 1024 * 1024
"""Of an answer that is not streamed."""
MOST_ERROR_BYTES = 1024 * 1024
READ_THROUGH_BYTES = 256 * 1024
"""Up to here a whole answer is checked to be JSON; of a longer one only its ends are looked at."""
_ERROR = re.compile(rb'\s*\{\s*"error"\s*:\s*[{"]')
_OWN_FAULT = (401, 402, 403)
"""402: a provider's word for an account without money."""
_AGAIN = (408, 429)
_SAYS_WHEN = (429, 503)


async def relay(exchange: Exchange, connection: Connection, policies: Policies) -> Failure | None:
    """The answer on `connection` to the client; None when it is out whole. Raises `UpstreamError`."""
    waits = Waits(exchange, connection, policies)
    failure = await waits.head()
    if failure is not None:
        return failure
    inflate = _inflater(connection) if connection.header(b"content-encoding") else None
    if not 200 <= connection.status < 300:
        return await _refused(waits, inflate)
    assert exchange.request is not None
    if exchange.request.stream and connection.header(b"content-type").startswith(b"text/event-stream"):
        return await Stream(exchange, waits, inflate).run()
    body = connection.whole() if inflate is None else None
    answer = _whole(exchange, connection, body if body is not None else await _all(waits, inflate, MOST_WHOLE_BYTES))
    if isinstance(answer, Failure):
        return answer
    if not exchange.client.answer(*answer):
        await exchange.client.whole(*answer)
    return None


def _whole(exchange: Exchange, connection: Connection, body: bytes | Failure) -> tuple[int, Headers, bytes] | Failure:
    """What the client gets for `body`, or why that is no answer."""
    if isinstance(body, Failure):
        return body
    counts = chunk.usual_answer(body) if len(body) <= READ_THROUGH_BYTES else None
    if counts is None and _ERROR.match(body):
        return reported(chunk.look(sse.Event(body)).error or chunk.error_of(None, body))
    tally = exchange.tally
    kind = connection.header(b"content-type") or b"application/json"
    assert exchange.request is not None
    if exchange.request.stream:
        return Failure(Kind.BAD_ANSWER, "the engine answered a streamed request in one piece")
    if kind.startswith(b"text/event-stream"):
        return GARBAGE
    if counts is None:
        if not _is_answer(body, connection.framed):
            return GARBAGE
        if b"finish_reason" in body:
            try:
                body = chunk.mend_endings(body)
            except chunk.BadEnding as e:
                return gave_up(e)
        counts = usage.find(body)
    tally.usage = counts
    if tally.usage is None or tally.usage.completion is None:
        tally.text_tokens = usage.estimate_answer(body)
    tally.content_sent = tally.finished = True
    if exchange.capture is not None:
        exchange.capture.add(body)
    return connection.status, [(b"content-type", kind), *exchange.answer_headers()], body


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
    while not waits.connection.ended:
        data = await waits.read()
        if isinstance(data, Failure):
            return data
        if not data:
            break
        if inflate is not None:
            try:
                data = inflate(data)
            except zlib.error:
                return Failure(Kind.BAD_ANSWER, "the engine's answer cannot be decompressed")
        pieces.append(data)
        size += len(data)
        if size > most:
            return Failure(Kind.BAD_ANSWER, f"the engine's answer is larger than {most} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _inflater(connection: Connection) -> Callable[[bytes], bytes] | None:
    """For an engine that compresses although nobody asked it to."""
    encoding = connection.header(b"content-encoding")
    if encoding in (b"", b"identity"):
        return None
    return zlib.decompressobj(47).decompress  # gzip and zlib alike
