"""The same request again, through a real edge: every pair of forms, what is never kept, and what the books say."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.core import snapshot
from gateway.core.snapshot import Reuse
from llmgw import metrics
from tests.gateway.edges import AUTH, MODEL, OTHER_KEY, EdgeProcess, catalog, chat, content, endpoint, events
from tests.gateway.reuse.worlds import SECOND, ask, said, scopes, serve, zero
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, sse, usage

COUNTS = {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
CALLS = [
    {"id": "call_a", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "İzmir"}'}},
    {"id": "call_b", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
]


async def usual(call: Call) -> None:
    """Says which call it is, so that an answer given again is known by its number."""
    if call.path == "/v1/embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [call.number, 0.5]}
        await call.whole({"object": "list", "data": [vector], "usage": {"prompt_tokens": 3, "total_tokens": 3}})
    elif call.path == "/v1/completions":
        await completion(call)
    elif call.json.get("stream"):
        await call.stream(delta(role="assistant"), delta("n"), delta(str(call.number)), finish(), usage(), DONE)
    else:
        await call.whole(answer(f"n{call.number}"))


async def completion(call: Call) -> None:
    if not call.json.get("stream"):
        choice = {"index": 0, "text": f"n{call.number}", "finish_reason": "stop", "logprobs": None}
        await call.whole({"id": "x", "object": "text_completion", "choices": [choice], "usage": COUNTS})
        return
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL}
    for text, end in (("n", None), (str(call.number), "stop")):
        piece = {**head, "choices": [{"index": 0, "text": text, "finish_reason": end}]}
        await (call.stream(sse(piece), end=False) if end is None else call.piece(sse(piece)))
    await call.piece(sse({**head, "choices": [], "usage": COUNTS}))
    await call.piece(DONE)
    await call.raw(b"0\r\n\r\n")


async def reasons(call: Call) -> None:
    """Thinks, and calls two tools."""
    if call.json.get("stream"):
        pieces = [delta(role="assistant"), delta(reasoning_content="let me "), delta(reasoning_content="see")]
        for i, tool in enumerate(CALLS):
            name, arguments = tool["function"]["name"], tool["function"]["arguments"]  # type: ignore[index]
            head = {"index": i, "id": tool["id"], "type": "function", "function": {"name": name, "arguments": ""}}
            pieces.append(delta(tool_calls=[head]))
            pieces += [
                delta(tool_calls=[{"index": i, "function": {"arguments": part}}])
                for part in (arguments[:7], arguments[7:])
            ]
        await call.stream(*pieces, finish("tool_calls"), usage(), DONE)
        return
    message = {"role": "assistant", "content": None, "reasoning_content": "let me see", "tool_calls": CALLS}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    await call.whole(answer(choices=[choice]))


def in_thread(function: Any, *args: Any, **named: Any) -> Any:
    return asyncio.to_thread(function, *args, **named)


async def both(edge: EdgeProcess, first: dict[str, Any], then: dict[str, Any], script: Any = usual) -> Any:
    async with engine(script) as up:
        serve(edge, up.port)
        a = await in_thread(ask, edge, first)
        b = await in_thread(ask, edge, then)
        assert len(up.calls) == 1
    assert (a.status_code, said(a), b.status_code, said(b)) == (200, "miss", 200, "hit"), (a.text, b.text)
    assert "age" not in a.headers
    assert int(b.headers["age"]) in (0, 1)
    assert a.headers["x-request-id"] != b.headers["x-request-id"]
    assert "x-llmgw-replica" not in b.headers
    return a, b


WITH_COUNTS = {"stream": True, "stream_options": {"include_usage": True}}


async def test_a_stream_then_json(edge: EdgeProcess) -> None:
    _, again = await both(edge, zero(stream=True), zero())
    assert again.headers["content-type"] == "application/json"
    assert "transfer-encoding" not in again.headers
    found = again.json()
    assert found["object"] == "chat.completion"
    assert found["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "n1"}, "finish_reason": "stop"}
    ]
    assert found["usage"] == COUNTS, "as the model counted them, though nobody asked the stream for them"
    assert (found["id"], found["model"], found["created"]) == ("chatcmpl-a1", MODEL, 1)


@pytest.mark.parametrize("counts", [False, True])
async def test_json_then_a_stream(edge: EdgeProcess, counts: bool) -> None:
    whole, again = await both(edge, zero(), zero(**WITH_COUNTS) if counts else zero(stream=True))
    assert again.headers["content-type"] == "text/event-stream"
    assert "content-length" not in again.headers
    chunks = events(again.content)
    assert chunks.pop() == "[DONE]"
    if counts:
        last = chunks.pop()
        assert (last["choices"], last["usage"]) == ([], COUNTS)
    [chunk] = chunks
    assert chunk["object"] == "chat.completion.chunk"
    assert "usage" not in chunk
    assert chunk["choices"] == [{"index": 0, "delta": whole.json()["choices"][0]["message"], "finish_reason": "stop"}]


async def test_a_stream_then_a_stream_with_counts(edge: EdgeProcess) -> None:
    first, again = await both(edge, zero(stream=True), zero(**WITH_COUNTS))
    assert content(first.content) == content(again.content) == "n1"
    assert b'"usage"' not in first.content
    assert events(again.content)[-2]["usage"] == COUNTS


async def test_json_then_json_is_the_same_bytes(edge: EdgeProcess) -> None:
    first, again = await both(edge, zero(), zero())
    assert first.content == again.content


@pytest.mark.parametrize("streamed", [(False, True), (True, False), (True, True)])
async def test_thinking_and_tool_calls_are_not_lost(edge: EdgeProcess, streamed: tuple[bool, bool]) -> None:
    _, again = await both(edge, zero(stream=streamed[0]), zero(stream=streamed[1]), reasons)
    if streamed[1]:
        [choice] = events(again.content)[0]["choices"]
        told = choice["delta"]
        assert [call.pop("index") for call in told["tool_calls"]] == [0, 1]
    else:
        [choice] = again.json()["choices"]
        told = choice["message"]
        assert told["content"] is None
    assert told["reasoning_content"] == "let me see"
    assert told["tool_calls"] == CALLS
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("streamed", [(False, True), (True, False)])
async def test_completions(edge: EdgeProcess, streamed: tuple[bool, bool]) -> None:
    body = {"model": MODEL, "prompt": "1+1=", "temperature": 0.0}
    async with engine(usual) as up:
        serve(edge, up.port)
        await in_thread(ask, edge, {**body, "stream": streamed[0]}, "/v1/completions")
        again = await in_thread(ask, edge, {**body, "stream": streamed[1]}, "/v1/completions")
        other = await in_thread(ask, edge, zero())
    assert (said(again), said(other)) == ("hit", "miss"), "another endpoint is another request"
    found = events(again.content)[0] if streamed[1] else again.json()
    assert found["object"] == "text_completion"
    assert (found["choices"][0]["text"], found["choices"][0]["finish_reason"]) == ("n1", "stop")


async def test_embeddings_need_no_temperature(edge: EdgeProcess) -> None:
    body = {"model": MODEL, "input": ["one", "two"]}
    async with engine(usual) as up:
        serve(edge, up.port)
        first = await in_thread(ask, edge, body, "/v1/embeddings")
        again = await in_thread(ask, edge, body, "/v1/embeddings")
        other = await in_thread(ask, edge, {**body, "input": ["one"]}, "/v1/embeddings")
    assert [said(x) for x in (first, again, other)] == ["miss", "hit", "miss"]
    assert first.content == again.content


async def test_several_choices_are_a_chunk_each(edge: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        choices = [
            {"index": i, "message": {"role": "assistant", "content": c}, "finish_reason": "stop"}
            for i, c in enumerate("ab")
        ]
        await call.whole(answer(choices=choices))

    _, again = await both(edge, zero(n=2), zero(n=2, stream=True), script)
    chunks = events(again.content)
    assert [c["choices"][0]["index"] for c in chunks[:-1]] == [0, 1]


async def test_what_changes_the_question_and_what_does_not(edge: EdgeProcess) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "default": None}}}
    base = zero(tools=[tool])
    other_tool = json.loads(json.dumps(base).replace('"f"', '"g"'))
    without_null = json.loads(json.dumps(base).replace(', "default": null', ""))
    assert without_null != base
    same = [
        dict(reversed(base.items())),
        {**base, "top_p": None, "messages": [{"content": "hi", "name": None, "role": "user"}]},
        {**base, "user": "u1", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {**base, "temperature": 0.0, "model": "helper"},
        {**base, "stream": True, "stream_options": {"include_usage": True}},
    ]
    different = [
        other_tool,
        without_null,
        zero(),
        {**base, "max_tokens": 5},
        {**base, "messages": [{"role": "user", "content": "hi "}]},
        {**base, "messages": [{"role": "system", "content": "hi"}]},
    ]
    async with engine(usual) as up:
        serve(edge, up.port)
        assert said(await in_thread(ask, edge, base)) == "miss"
        assert [said(await in_thread(ask, edge, body)) for body in same] == ["hit"] * len(same)
        assert [said(await in_thread(ask, edge, body)) for body in different] == ["miss"] * len(different)


async def test_another_project_never_sees_it(edge: EdgeProcess) -> None:
    async with engine(usual) as up:
        serve(edge, up.port)
        mine = await in_thread(ask, edge, zero())
        theirs = await in_thread(ask, edge, zero(), **SECOND)
        neither = await in_thread(ask, edge, zero(), authorization=f"Bearer {OTHER_KEY}")
        nobody = await in_thread(ask, edge, zero(), authorization="Bearer wrong")
        assert len(up.calls) == 2
    assert (said(mine), said(theirs)) == ("miss", "miss")
    assert mine.json()["choices"] != theirs.json()["choices"]
    assert (neither.status_code, said(neither), nobody.status_code) == (403, "", 401), "policies first"


async def test_sampled_answers_are_asked_anew_unless_the_project_says_any(edge: EdgeProcess) -> None:
    sampled = [chat(), zero(temperature=0.7), zero(temperature=0.7, seed=-1)]
    seeded = zero(temperature=0.7, seed=5)
    async with engine(usual) as up:
        serve(edge, up.port)
        for body in sampled:
            assert [said(await in_thread(ask, edge, body)) for _ in range(2)] == ["bypass", "bypass"]
        assert [said(await in_thread(ask, edge, seeded)) for _ in range(2)] == ["miss", "hit"]
        serve(edge, up.port, Reuse(3600.0, any=True, since=time.time()))
        for body in sampled:
            assert [said(await in_thread(ask, edge, body)) for _ in range(2)] == ["miss", "hit"]


@pytest.mark.parametrize(
    "headers", [{"cache_control": "no-cache"}, {"cache_control": "max-age=0, No-Store"}, {"x_llmgw_cache": "no"}]
)
async def test_the_client_may_ask_anew(edge: EdgeProcess, headers: dict[str, str]) -> None:
    async with engine(usual) as up:
        serve(edge, up.port)
        await in_thread(ask, edge, zero())
        anew = await in_thread(ask, edge, zero(), **headers)
        again = await in_thread(ask, edge, zero(), cache_control="max-age=60")
    assert (said(anew), content_of(anew)) == ("bypass", "n2")
    assert (said(again), content_of(again)) == ("hit", "n1"), "what was asked anew is not kept"


def content_of(answered: httpx.Response) -> str:
    return str(answered.json()["choices"][0]["message"]["content"])


async def test_nothing_of_a_no_store_project_and_nothing_where_it_is_off(edge: EdgeProcess) -> None:
    async with engine(usual) as up:
        serve(edge, up.port, no_store=True)
        assert [said(await in_thread(ask, edge, zero())) for _ in range(2)] == ["bypass", "bypass"]
        edge.publish(tenancy=scopes(None))
        assert [said(await in_thread(ask, edge, zero())) for _ in range(2)] == ["", ""]
        assert len(up.calls) == 4


async def begun(call: Call) -> None:
    """What came is with the client before more comes: what fails now is not tried again."""
    await call.stream(delta("half"), end=False)
    await asyncio.sleep(0.1)


async def rest(call: Call, *pieces: str) -> None:
    for piece in pieces:
        await call.piece(piece)
    await call.raw(b"0\r\n\r\n")


async def cut(call: Call) -> None:
    if call.number == 1:
        await begun(call)
        call.reset()
    else:
        await usual(call)


async def error_inside(call: Call) -> None:
    if call.number == 1:
        await begun(call)
        await rest(call, sse({"error": {"message": "out of memory", "code": 500}}), DONE)
    else:
        await usual(call)


async def error_after(call: Call) -> None:
    if call.number == 1:
        await begun(call)
        await rest(call, finish(), sse({"error": {"message": "too late", "code": 500}}), DONE)
    else:
        await usual(call)


async def refused(call: Call) -> None:
    if call.number == 1:
        await call.whole({"error": {"message": "no", "type": "invalid_request_error"}}, 422)
    else:
        await usual(call)


async def stopped(call: Call) -> None:
    """By a filter: not what the model would have said."""
    if call.number == 1:
        await call.stream(delta("half"), finish("content_filter"), usage(), DONE)
    else:
        await usual(call)


@pytest.mark.parametrize("script", [cut, error_inside, error_after, refused, stopped])
async def test_what_is_not_a_whole_answer_is_not_kept(edge: EdgeProcess, script: Any) -> None:
    async with engine(script) as up:
        serve(edge, up.port)
        for result in ("miss", "miss", "hit"):
            found = await in_thread(ask, edge, zero(stream=True))
            assert said(found) == result
    assert content(found.content) == "n2"


async def test_an_answer_that_is_too_long_is_not_kept(edge: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        text = "x" * 3000
        if call.json.get("stream"):
            await call.stream(delta(text), finish(), usage(), DONE)
        else:
            await call.whole(answer(text))

    async with engine(script) as up:
        serve(edge, up.port, cache=snapshot.CachePolicy(max_entry_bytes=2000))
        for stream in (False, True):
            assert [said(await in_thread(ask, edge, zero(stream=stream))) for _ in range(2)] == ["miss", "miss"]
        serve(edge, up.port, cache=snapshot.CachePolicy(max_entry_bytes=4000))
        assert [said(await in_thread(ask, edge, zero(stream=True))) for _ in range(2)] == ["miss", "hit"]


async def test_a_client_that_left_leaves_nothing_behind(edge: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        if call.number == 1:
            await call.stream(delta("half"), end=False)
            await call.gone.wait()
        else:
            await usual(call)

    async with engine(script) as up:
        serve(edge, up.port)
        async with (
            httpx.AsyncClient(base_url=edge.url, headers=AUTH) as http,
            http.stream("POST", "/v1/chat/completions", json=zero(stream=True)) as found,
        ):
            async for _ in found.aiter_raw():
                break
        assert said(await in_thread(ask, edge, zero(stream=True))) == "miss"


async def test_two_at_the_same_moment_are_both_right(edge: EdgeProcess) -> None:
    both_in = asyncio.Event()

    async def script(call: Call) -> None:
        if call.number == 2:
            both_in.set()
        await both_in.wait()
        await usual(call)

    async with engine(script) as up:
        serve(edge, up.port)
        found = await asyncio.gather(*(in_thread(ask, edge, zero(stream=s)) for s in (True, False)))
        assert [said(x) for x in found] == ["miss", "miss"]
        assert {x.status_code for x in found} == {200}
        after = await in_thread(ask, edge, zero())
    assert said(after) == "hit"
    assert content_of(after) in ("n1", "n2")


async def test_a_shorter_life_holds_for_what_is_kept_already(edge: EdgeProcess) -> None:
    async with engine(usual) as up:
        serve(edge, up.port)
        await in_thread(ask, edge, zero())
        await asyncio.sleep(0.3)
        edge.publish(tenancy=scopes(Reuse(0.2)))
        assert said(await in_thread(ask, edge, zero())) == "miss"
        edge.publish(tenancy=scopes(Reuse(3600.0)))
        assert said(await in_thread(ask, edge, zero())) == "hit"
        edge.publish(tenancy=scopes(Reuse(3600.0, since=time.time())))
        assert said(await in_thread(ask, edge, zero())) == "miss", "cleared"


async def test_a_hit_is_in_the_books_with_no_tokens_and_no_cost(edge: EdgeProcess) -> None:
    async with engine(usual) as up:
        serve(edge, up.port)
        first = await in_thread(ask, edge, zero())
        again = await in_thread(ask, edge, zero(stream=True))
        bypass = await in_thread(ask, edge, chat())
    row = edge.settlement(first.headers["x-request-id"])
    assert (row.cache, row.prompt_tokens, row.completion_tokens) == ("miss", 11, 2)
    row = edge.settlement(again.headers["x-request-id"])
    assert (row.outcome, row.status, row.cache, row.replica, row.attempts) == ("ok", 200, "hit", "", 0)
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.cost or 0) == (0, 0, 0, 0)
    assert not row.estimated
    intent, _ = edge.books()[again.headers["x-request-id"]]
    assert (intent.model, intent.project, intent.key) == (MODEL, "p1", "k1")
    assert edge.settlement(bypass.headers["x-request-id"]).cache == "bypass"


async def test_a_hit_needs_no_replica(edge: EdgeProcess) -> None:
    async with engine(usual) as up:
        serve(edge, up.port)
        await in_thread(ask, edge, zero())
        edge.publish(endpoints=snapshot.Endpoints())
        again = await in_thread(ask, edge, zero())
        other = await in_thread(ask, edge, zero(max_tokens=3))
    assert (said(again), again.headers["x-llmgw-served-model"]) == ("hit", MODEL)
    assert (said(other), other.status_code) == ("miss", 503)


async def test_a_fallbacks_answer_is_not_kept(edge: EdgeProcess) -> None:
    async with engine(usual) as up:
        serve(edge, up.port)
        first = replace(catalog().models[MODEL], fallbacks=("other",))
        other = snapshot.ModelEntry("other", (), "serving")
        edge.publish(
            catalog=snapshot.Catalog(models={MODEL: first, "other": other}),
            endpoints=snapshot.Endpoints(endpoints=(endpoint(up.port, "r-00000000f0", "other"),)),
        )
        for _ in range(2):
            found = await in_thread(ask, edge, zero())
            assert (said(found), found.headers["x-llmgw-served-model"]) == ("miss", "other")
        edge.publish(endpoints=snapshot.Endpoints(endpoints=(endpoint(up.port),)))
        assert [said(await in_thread(ask, edge, zero())) for _ in range(2)] == ["miss", "hit"]


async def test_a_long_stream_is_put_together_in_pauses(edge: EdgeProcess) -> None:
    text = [f"w{i} " for i in range(2000)]

    async def script(call: Call) -> None:
        await call.stream(*(delta(t) for t in text), finish(), usage(), DONE)

    async with engine(script) as up:
        serve(edge, up.port)
        first = await in_thread(ask, edge, zero(stream=True))
        for _ in range(50):
            again = await in_thread(ask, edge, zero())
            if said(again) == "hit":
                break
    assert content(first.content) == content_of(again) == "".join(text)


async def test_the_figures(own_edge: EdgeProcess) -> None:
    async with engine(usual) as up:
        own_edge.start()
        serve(own_edge, up.port)
        for body in (zero(), zero(), zero(), chat()):
            await in_thread(ask, own_edge, body)
        found: dict[tuple[str, ...], float] = {}
        for _ in range(60):
            with own_edge.client() as client:
                keys = list(client.scan_iter(f"{metrics.PREFIX}edge-*"))
                states = [metrics.decode(client.get(key) or b"") for key in keys]
            found = {(n, *ls): v for s in states for n, ls, v in (*s.counters, *s.gauges)}
            if found.get(("llmgw_cache_requests_total", MODEL, "bypass")):
                break
            await asyncio.sleep(0.05)
    assert found["llmgw_cache_requests_total", MODEL, "hit"] == 2
    assert found["llmgw_cache_requests_total", MODEL, "miss"] == 1
    assert found["llmgw_cache_entries",] == 1
    assert 500 < found["llmgw_cache_bytes",] < 2000
    assert found["llmgw_cache_saved_tokens_total", "p1", MODEL] == 26
