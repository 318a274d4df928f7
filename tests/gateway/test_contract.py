"""The stream contract (docs/streams.md) as one table: endpoint, way of answering and fault; what the client, the
engine and the books then show.

A scripted engine on a raw socket, the real edge. The engine's first answer is the faulty one, any later one is good:
what may be made again is, and what the client has seen never is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gateway.core import grammar
from tests.gateway.edges import AUTH, MODEL, EdgeProcess, endpoint, events
from tests.gateway.upstreams import CHUNK, DONE, Call, Upstream, answer, engine, sse, usage

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings"}
WHOLE, STREAMED = "whole", "streamed"
WORDS = ("Hel", "lo")
TIMES = {"header_timeout_s": 0.6, "idle_timeout_s": 0.4, "generation_timeout_s": 5.0, "keepalive_s": 0.15, "retries": 1}
PROMPT, COMPLETION = 11, 2


@dataclass(frozen=True)
class Say:
    """What an engine of one endpoint says, in both ways."""

    kind: str
    streamed: bool

    def request(self, **fields: Any) -> dict[str, Any]:
        asks: dict[str, Any] = {
            "chat": {"messages": [{"role": "user", "content": "hi"}]},
            "completions": {"prompt": "hi"},
            "embeddings": {"input": "hi"},
        }[self.kind]
        return {"model": MODEL, **asks, **({"stream": True} if self.streamed else {}), **fields}

    @property
    def events(self) -> bool:
        return self.streamed and self.kind != "embeddings"

    def chunk(self, said: str = "", ending: str | None = None, first: bool = False) -> str:
        choice: dict[str, Any] = {"index": 0, "finish_reason": ending}
        if self.kind == "chat":
            choice["delta"] = {**({"role": "assistant"} if first else {}), **({"content": said} if said else {})}
            return sse({**CHUNK, "choices": [choice]})
        return sse({**CHUNK, "object": "text_completion", "choices": [{**choice, "text": said}]})

    def counts(self) -> str:
        return usage(PROMPT, COMPLETION).replace("chat.completion.chunk", grammar.OBJECTS[self.kind])

    def pieces(self) -> list[str]:
        return [self.chunk(WORDS[0], first=True), self.chunk(WORDS[1]), self.chunk(ending="stop"), self.counts(), DONE]

    def body(self) -> bytes:
        if self.kind == "embeddings":
            counts = {"prompt_tokens": PROMPT, "total_tokens": PROMPT}
            found: dict[str, Any] = {"object": "list", "model": MODEL, "usage": counts}
            return json.dumps({**found, "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}]}).encode()
        found = answer("".join(WORDS))
        if self.kind == "completions":
            choice = {"index": 0, "text": "".join(WORDS), "finish_reason": "stop"}
            found = {**found, "object": "text_completion", "choices": [choice]}
        return json.dumps(found).encode()

    async def good(self, call: Call) -> None:
        await (call.stream(*self.pieces()) if self.events else call.whole(self.body()))

    async def begin(self, call: Call) -> None:
        """The first word of it, or half of the body, and no more."""
        if self.events:
            await call.stream(self.pieces()[0], end=False)
        else:
            body = self.body()
            await call.raw(_head(len(body)) + body[:20])
        await asyncio.sleep(0.05)  # it must have reached the client


def _head(length: int, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n".encode()


Fault = Callable[[Say, Call], Awaitable[None]]


async def ends_well(say: Say, call: Call) -> None:
    await say.good(call)


async def dies_before(say: Say, call: Call) -> None:
    call.reset()


async def dies_after(say: Say, call: Call) -> None:
    await say.begin(call)
    call.reset()


async def error_first(say: Say, call: Call) -> None:
    said = {"error": {"message": "out of memory at 10.0.0.7:8101", "type": "server_error", "code": "oom"}}
    await (call.stream(sse(said), DONE) if say.events else call.whole(said))


async def error_after(say: Say, call: Call) -> None:
    await say.begin(call)
    await call.piece(sse({"error": {"message": "out of memory", "type": "server_error", "code": "oom"}}))
    await call.piece(DONE)
    await call.raw(b"0\r\n\r\n")


async def no_http(say: Say, call: Call) -> None:
    await call.raw(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    await asyncio.sleep(0.1)
    call.close()


async def garbage_first(say: Say, call: Call) -> None:
    await (call.stream("data: <html>oops</html>\n\n", DONE) if say.events else call.whole(b"<html>oops</html>"))


async def garbage_after(say: Say, call: Call) -> None:
    await say.begin(call)
    await call.piece('data: {"id":"chatcmpl-a1","object":"cha\n\n')
    await asyncio.sleep(20)


async def stalls_before(say: Say, call: Call) -> None:
    await asyncio.sleep(20)


async def stalls_after(say: Say, call: Call) -> None:
    await say.begin(call)
    await asyncio.sleep(20)


async def no_done(say: Say, call: Call) -> None:
    """Whole: an answer that ends with its connection."""
    if say.events:
        await call.stream(*say.pieces()[:-1])
    else:
        await call.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + say.body())
        call.close()


async def no_done_no_finish(say: Say, call: Call) -> None:
    """Whole: cut short, which nothing but the JSON tells."""
    if say.events:
        await call.stream(*say.pieces()[:2])
    else:
        await call.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + say.body()[:-9])
        call.close()


async def dies_after_finish(say: Say, call: Call) -> None:
    await call.stream(*say.pieces()[:3], end=False)
    await asyncio.sleep(0.05)
    call.reset()


async def stalls_after_finish(say: Say, call: Call) -> None:
    await call.stream(*say.pieces()[:3], end=False)
    await asyncio.sleep(20)


async def holds_after_done(say: Say, call: Call) -> None:
    await call.stream(*say.pieces(), say.chunk("too late"), end=False)
    await asyncio.sleep(20)


@dataclass(frozen=True)
class Expect:
    """`ends`: done | error:CODE (in-band) | STATUS:CODE | left. `counts`: exact | estimated."""

    ends: str
    outcome: str
    counts: str = "exact"
    attempts: int = 1
    words: str = "Hello"


GOOD, AGAIN = Expect("done", "ok"), Expect("done", "ok", attempts=2)


def broke(code: str, outcome: str = "engine_failed") -> Expect:
    return Expect(f"error:{code}", outcome, "estimated", words="Hel")


TABLE: list[tuple[Fault, Expect, Expect | None]] = [
    # fault, streamed, whole (None: there is no such thing)
    (ends_well, GOOD, GOOD),
    (dies_before, AGAIN, AGAIN),
    (dies_after, broke("engine_failed"), AGAIN),
    (error_first, AGAIN, AGAIN),
    (error_after, broke("oom"), None),
    (no_http, AGAIN, AGAIN),
    (garbage_first, AGAIN, AGAIN),
    (garbage_after, broke("engine_failed"), None),
    (stalls_before, AGAIN, AGAIN),
    (stalls_after, broke("engine_timeout", "timed_out"), AGAIN),
    (no_done, GOOD, GOOD),
    (no_done_no_finish, Expect("error:engine_failed", "engine_failed", "estimated"), AGAIN),
    (dies_after_finish, Expect("done", "ok", "estimated"), None),
    (stalls_after_finish, Expect("done", "ok", "estimated"), None),
    (holds_after_done, GOOD, None),
]
SAYS = [Say(kind, streamed) for kind in PATHS for streamed in (False, True)]
CELLS = [
    pytest.param(say, fault, expect, id=f"{say.kind}-{STREAMED if say.streamed else WHOLE}-{fault.__name__}")
    for fault, streamed, whole in TABLE
    for say in SAYS
    if (expect := streamed if say.events else whole) is not None
]


@dataclass
class Seen:
    """One request from the client's side."""

    status: int
    body: bytes
    request_id: str

    def ends(self, say: Say) -> str:
        if self.status != 200:
            return f"{self.status}:{json.loads(self.body)['error']['code']}"
        if not say.events:
            return "done"
        last = events(self.body)[-1]
        return "done" if last == "[DONE]" else f"error:{last['error']['code']}"

    def words(self, say: Say) -> str:
        if say.kind == "embeddings":
            return "Hello" if json.loads(self.body)["data"] else ""
        chunks = [e for e in events(self.body) if e != "[DONE]"] if say.events else [json.loads(self.body)]
        choices = [c for chunk in chunks for c in chunk.get("choices", [])]
        said = [c.get("text") or (c.get("delta") or c.get("message") or {}).get("content") or "" for c in choices]
        return "".join(said)


async def ask(http: httpx.AsyncClient, say: Say, **fields: Any) -> Seen:
    found = await http.post(PATHS[say.kind], json=say.request(**fields))
    return Seen(found.status_code, found.content, found.headers["x-request-id"])


async def no_slot_is_taken(edge: EdgeProcess) -> None:
    deadline = time.monotonic() + 3  # live figures are pushed each second
    while (edge.live().get("models") or {}).get(MODEL, {}).get("in_flight", 0):
        assert time.monotonic() < deadline, edge.live()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(("say", "fault", "expect"), CELLS)
async def test_contract(edge: EdgeProcess, http: httpx.AsyncClient, say: Say, fault: Fault, expect: Expect) -> None:
    over: set[int] = set()

    async def script(call: Call) -> None:
        await (fault(say, call) if call.number == 1 else say.good(call))
        over.add(call.number)

    async with engine(script) as up:
        edge.serve(endpoint(up.port), **TIMES)
        before = set(edge.books())
        began = time.monotonic()
        found = await ask(http, say)
        assert time.monotonic() - began < 3, "the client waited for what would not come"
        assert found.ends(say) == expect.ends, found.body
        assert found.words(say) == expect.words
        assert len(up.calls) == expect.attempts
        assert b"10.0.0.7" not in found.body
        if say.events:
            assert not grammar.broken(found.body, grammar.Asked(say.kind)), found.body
        row = edge.settlement(found.request_id)
        await asyncio.wait_for(free(up, over), 1)
    assert set(edge.books()) - before == {found.request_id}, "exactly one row"
    assert (row.outcome, row.attempts) == (expect.outcome, expect.attempts)
    assert row.estimated == (expect.counts == "estimated")
    assert row.prompt_tokens
    completion = None if say.kind == "embeddings" else COMPLETION
    if expect.counts == "exact":
        assert (row.prompt_tokens, row.completion_tokens) == (PROMPT, completion)
    else:
        assert row.completion_tokens


async def free(up: Upstream, over: set[int]) -> None:
    """The engine works for nobody: what it does not end by itself, it was told to."""
    for call in up.calls:
        if call.number not in over:
            await call.gone.wait()


@pytest.mark.parametrize("say", SAYS, ids=lambda s: f"{s.kind}-{STREAMED if s.streamed else WHOLE}")
@pytest.mark.parametrize("at", ["before_the_first_byte", "after_it"])
async def test_a_client_that_leaves(edge: EdgeProcess, http: httpx.AsyncClient, say: Say, at: str) -> None:
    async def script(call: Call) -> None:
        if at == "after_it":
            await say.begin(call)
        began.set()
        await asyncio.sleep(20)

    began = asyncio.Event()
    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        before = set(edge.books())
        task = asyncio.ensure_future(ask(http, say))
        await began.wait()
        await asyncio.sleep(0.1)
        task.cancel()
        left = time.monotonic()
        await asyncio.wait_for(up.calls[0].gone.wait(), 2)
        assert time.monotonic() - left < 1, "the engine worked on for nobody"
        row = edge.last(before=before)
    assert set(edge.books()) - before == {row.id}
    sent = say.events and at == "after_it"
    assert (row.outcome, row.status, row.attempts) == ("client_left", 200 if sent else 499, 1)
    assert row.estimated
    assert row.prompt_tokens
    assert row.completion_tokens == (1 if sent else 0)
    if say.kind == "chat":
        await no_slot_is_taken(edge)


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
async def test_a_client_that_leaves_at_any_chunk(edge: EdgeProcess, http: httpx.AsyncClient, chunks: int) -> None:
    say = Say("chat", True)

    async def script(call: Call) -> None:
        await call.stream(*say.pieces()[:chunks], end=False)
        await asyncio.sleep(20)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        before = set(edge.books())
        async with http.stream("POST", PATHS["chat"], json=say.request()) as found:
            await anext(found.aiter_raw())
            await asyncio.sleep(0.1)
        left = time.monotonic()
        await asyncio.wait_for(up.calls[0].gone.wait(), 2)
        assert time.monotonic() - left < 1
        row = edge.last(before=before)
    assert (row.outcome, row.estimated) == ("client_left", chunks < 4), "the engine's counts, where they came"
    assert row.completion_tokens == min(chunks, 2) or row.estimated


@pytest.mark.parametrize("kind", ["chat", "completions"])
@pytest.mark.parametrize("asked", [False, True])
async def test_the_counts_go_to_those_who_asked(
    edge: EdgeProcess, http: httpx.AsyncClient, kind: str, asked: bool
) -> None:
    say = Say(kind, True)
    async with engine(say.good) as up:
        edge.serve(endpoint(up.port))
        found = await ask(http, say, **({"stream_options": {"include_usage": True}} if asked else {}))
    assert not grammar.broken(found.body, grammar.Asked(kind, usage=asked))
    assert (b"usage" in found.body) == asked


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("ends", ["with_done", "without"])
async def test_counts_beside_a_choice_come_alone(
    edge: EdgeProcess, http: httpx.AsyncClient, each: bool, ends: str
) -> None:
    """As llama.cpp's completions have them; who asked for counts in every chunk gets them as they are."""
    say = Say("completions", True)
    first, second, last, counts, done = say.pieces()
    both = sse({**json.loads(last[6:]), "usage": json.loads(counts[6:])["usage"]})

    async def script(call: Call) -> None:
        await call.stream(first, second, both, *([done] if ends == "with_done" else []))

    options = {"include_usage": True, "continuous_usage_stats": True} if each else {"include_usage": True}
    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        found = await ask(http, say, stream_options=options)
    if each:
        assert both.encode() in found.body
    else:
        assert not grammar.broken(found.body, grammar.Asked("completions", usage=True)), found.body
    row = edge.settlement(found.request_id)
    assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (PROMPT, COMPLETION, False)


async def test_every_choice_must_finish(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """Two answers asked for and one of them ended: the stream was cut."""
    say = Say("chat", True)

    def other(piece: str) -> str:
        return piece.replace('"index":0', '"index":1')

    first = [say.chunk("a", first=True), other(say.chunk("b", first=True)), say.chunk(ending="stop")]

    async def script(call: Call) -> None:
        await call.stream(*first, *([other(say.chunk(ending="stop"))] if call.number == 2 else []))

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        cut, whole = await ask(http, say, n=2), await ask(http, say, n=2)
    assert (cut.ends(say), whole.ends(say)) == ("error:engine_failed", "done")
    assert not grammar.broken(whole.body, grammar.Asked(choices=2))


@pytest.mark.parametrize("opening", ["", ": queued\n\n", sse({**CHUNK, "choices": []})])
async def test_a_long_prefill_lives_by_comments(edge: EdgeProcess, http: httpx.AsyncClient, opening: str) -> None:
    """Fifteen minutes as fifteen tenths of a second: longer than the idle limit, within that of the first byte, also
    where the engine has sent its headers, a comment or an empty chunk."""
    say = Say("chat", True)

    async def script(call: Call) -> None:
        if opening:
            await call.stream(opening, end=False)
        await asyncio.sleep(1.5)
        await (call.stream(*say.pieces()) if not opening else _go_on(call))

    async def _go_on(call: Call) -> None:
        for piece in say.pieces():
            await call.piece(piece)
        await call.raw(b"0\r\n\r\n")

    async with engine(script) as up:
        edge.serve(endpoint(up.port), **{**TIMES, "header_timeout_s": 5.0, "idle_timeout_s": 0.3})
        found = await ask(http, say)
        assert len(up.calls) == 1
    assert found.ends(say) == "done"
    assert found.body.count(b": keep-alive\n\n") >= 5
    assert not grammar.broken(found.body, grammar.Asked())
    assert (edge.settlement(found.request_id).ttft_ms or 0) > 1400


async def test_a_connection_is_kept_after_done(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    """The answer is out at [DONE]; the end of the engine's, a moment later, still frees its connection for the next."""
    say = Say("chat", True)
    seen = asyncio.Event()

    async def script(call: Call) -> None:
        await call.stream(*say.pieces(), end=False)
        await seen.wait()  # the client has its answer before the engine ends its own
        await call.raw(b"0\r\n\r\n")

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        for _ in range(5):
            seen.clear()
            assert (await ask(http, say)).ends(say) == "done"
            seen.set()
            await asyncio.sleep(0.1)
        assert up.connections < 5  # one, where the machine is not too busy


async def test_a_storm_leaves_nothing_behind(edge: EdgeProcess) -> None:
    """All faults at once, every third client leaving: one row each, no place kept, the next request served."""
    faults = [fault for fault, streamed, _ in TABLE if streamed is not None]
    turn = 0

    async def script(call: Call) -> None:
        nonlocal turn
        turn += 1
        say = Say(next(kind for kind, path in PATHS.items() if path == call.path), call.json.get("stream", False))
        fault = faults[turn % len(faults)] if storm and say.events else ends_well
        await fault(say, call)

    async def one(number: int, http: httpx.AsyncClient) -> None:
        say = SAYS[number % len(SAYS)]
        sent = http.post(PATHS[say.kind], json=say.request())
        try:
            await asyncio.wait_for(sent, 0.4 if number % 3 == 0 else 10)
        except TimeoutError:
            left.append(number)

    left: list[int] = []
    storm = True
    async with engine(script) as up, httpx.AsyncClient(base_url=edge.url, headers=AUTH, timeout=15) as http:
        edge.serve(endpoint(up.port), **TIMES)
        before = set(edge.books())
        await asyncio.gather(*(one(n, http) for n in range(90)))
        storm = False
        assert left, "nobody left: it was no storm"
        await no_slot_is_taken(edge)
        rows = [row for id_, (_, row) in edge.books().items() if id_ not in before]
        assert 90 - len(left) <= len(rows) <= 90, "a request whose client left before it was read has none"
        assert all(row is not None for row in rows)
        assert all(row.outcome != "unknown" for row in rows if row)
        assert (await ask(http, SAYS[0])).ends(SAYS[0]) == "done"


def test_the_table() -> None:
    """`pytest tests/gateway/test_contract.py -k the_table -s` prints it."""
    for fault, streamed, whole in TABLE:
        print(f"{fault.__name__:22} {_cell(streamed):46} {_cell(whole)}")
    assert {say.kind for say in SAYS} == set(PATHS)


def _cell(expect: Expect | None) -> str:
    if expect is None:
        return "-"
    return f"{expect.ends}, {expect.outcome}, {expect.counts}, {expect.attempts} tried"
