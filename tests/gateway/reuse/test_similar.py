"""A question like one that was answered: what is compared, how alike it must be, and what happens without a model."""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core import snapshot
from gateway.core.reuse import similar
from gateway.core.reuse.asked import read
from llmgw import secrets
from llmgw.keys import engine_key
from tests.gateway.conftest import llamacpp
from tests.gateway.edges import EdgeProcess, catalog, content, endpoint
from tests.gateway.reuse.worlds import SECOND, ask, now, said, scopes, zero
from tests.gateway.upstreams import Call, answer, engine

EMBEDDER = "bge-tiny"
REUSE = {"ttl_s": 3600.0, "similar": 0.95}
ANGLES = {"how do I reset my password": 0, "How can I reset my password?": 10, "what does it cost": 80}
"""Degrees. The cosine of 10° is 0.985."""


async def scripted(call: Call) -> None:
    if call.path == "/v1/embeddings":
        angle = math.radians(ANGLES[call.json["input"]])
        vector = {"index": 0, "embedding": [3 * math.cos(angle), 3 * math.sin(angle)]}
        await call.whole({"data": [vector], "usage": {"prompt_tokens": 3, "total_tokens": 3}})
    else:
        await call.whole(answer(f"n{call.number}"))


def serve(edge: EdgeProcess, port: int, embedder: int | None = None, model: str = EMBEDDER, **reuse: Any) -> None:
    endpoints = [endpoint(port)]
    if embedder is not None:
        endpoints.append(endpoint(embedder, "r-00000000e0", EMBEDDER))
    embedding = snapshot.ModelEntry(EMBEDDER, (), "serving", kinds=("embeddings",))
    edge.publish(
        tenancy=scopes(snapshot.Reuse(**{**REUSE, "since": now(), **reuse})),
        catalog=catalog(**{EMBEDDER: embedding}),
        endpoints=snapshot.Endpoints(endpoints=tuple(endpoints)),
        policies=snapshot.Policies(cache=snapshot.CachePolicy(embedding_model=model)),
    )


FIRST, ALIKE, OTHER = ANGLES


def turns(*texts: str, **fields: Any) -> dict[str, Any]:
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return zero(messages=[{"role": "system", "content": "help"}, *messages], **fields)


async def asked(edge: EdgeProcess, body: dict[str, Any], **headers: str) -> httpx.Response:
    return await asyncio.to_thread(ask, edge, body, **headers)


async def test_one_in_other_words_is_answered_with_the_same(edge: EdgeProcess) -> None:
    async with engine(scripted) as up, engine(scripted) as embedder:
        serve(edge, up.port, embedder.port)
        assert said(await asked(edge, turns(FIRST))) == "miss"
        again = await asked(edge, turns(ALIKE, stream=True))
        same = await asked(edge, turns(FIRST))
        assert said(await asked(edge, turns(OTHER))) == "miss"
        assert len(embedder.calls) == 3, "one that is the same embeds nothing"
        assert len(up.calls) == 2
    assert (said(again), again.headers["x-llmgw-cache-similarity"]) == ("similar", "0.9848")
    assert content(again.content) == "n1"
    assert int(again.headers["age"]) <= 1
    assert said(same) == "hit"
    assert "x-llmgw-cache-similarity" not in same.headers
    row = edge.settlement(again.headers["x-request-id"])
    assert (row.cache, row.prompt_tokens, row.completion_tokens, row.cost or 0) == ("similar", 0, 0, 0)
    assert len([1 for intent, _ in edge.books().values() if intent.model == EMBEDDER]) == 0, "on nobody's account"


async def test_only_in_the_same_conversation(edge: EdgeProcess) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    others = [
        turns(ALIKE, temperature=0, top_p=0.5),
        turns("hello", "hi", ALIKE),
        turns(ALIKE, tools=[tool]),
        turns(ALIKE, response_format={"type": "json_object"}),
        zero(messages=[{"role": "system", "content": "be rude"}, {"role": "user", "content": ALIKE}]),
    ]
    async with engine(scripted) as up, engine(scripted) as embedder:
        began = now()
        serve(edge, up.port, embedder.port, since=began)
        await asked(edge, turns(FIRST))
        assert [said(await asked(edge, body)) for body in others] == ["miss"] * len(others)
        assert said(await asked(edge, turns(ALIKE), **SECOND)) == "miss", "another project's"
        serve(edge, up.port, embedder.port, similar=0.99, since=began)
        assert said(await asked(edge, turns(ALIKE))) == "miss", "not alike enough for what the project says now"


async def test_without_its_model_only_the_same_is_answered(edge: EdgeProcess) -> None:
    async with engine(scripted) as up:
        for model in (EMBEDDER, "nowhere", ""):
            serve(edge, up.port, model=model)
            assert [said(await asked(edge, turns(q))) for q in (FIRST, ALIKE, FIRST)] == ["miss", "miss", "hit"]


async def test_no_word_leaves_the_cluster_for_it(edge: EdgeProcess) -> None:
    async with engine(scripted) as up, engine(scripted) as outside:
        serve(edge, up.port, outside.port)
        external = snapshot.External(f"http://127.0.0.1:{outside.port}", "embedder")
        embedding = snapshot.ModelEntry(EMBEDDER, (), "serving", kinds=("embeddings",), external=external)
        edge.publish(catalog=catalog(**{EMBEDDER: embedding}))
        assert [said(await asked(edge, turns(q))) for q in (FIRST, ALIKE)] == ["miss", "miss"]
        assert not outside.calls


async def test_it_is_waited_for_two_seconds_at_most(edge: EdgeProcess) -> None:
    async def silent(call: Call) -> None:
        await call.gone.wait()

    async with engine(scripted) as up, engine(silent) as embedder:
        serve(edge, up.port, embedder.port)
        began = time.monotonic()
        assert said(await asked(edge, turns(FIRST))) == "miss"
        assert 1.9 < time.monotonic() - began < 4


async def nonsense(call: Call) -> None:
    await (call.whole({"data": []}) if call.path == "/v1/embeddings" else scripted(call))


async def failing(call: Call) -> None:
    await (call.whole({"error": "no"}, 500) if call.path == "/v1/embeddings" else scripted(call))


@pytest.mark.parametrize("script", [nonsense, failing])
async def test_one_that_answers_nonsense_is_no_help(edge: EdgeProcess, script: Any) -> None:
    async with engine(script) as up, engine(script) as embedder:
        serve(edge, up.port, embedder.port)
        assert [said(await asked(edge, turns(q))) for q in (FIRST, ALIKE)] == ["miss", "miss"]


async def test_with_real_embeddings(edge: EdgeProcess, weights: Path) -> None:
    """The tiny chat model's own states, as llama.cpp pools them: the way is real, the likeness says little."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = int(s.getsockname()[1])
    key = engine_key(secrets.read_or_make(edge.home / "secrets", "engine"), "r-00000000e0")
    process = llamacpp(weights, port, key, "--embeddings", "--pooling", "mean")
    try:
        async with engine(scripted) as up:
            serve(edge, up.port, port, similar=0.6)
            assert said(await asked(edge, turns("count to 12"))) == "miss"
            again = await asked(edge, turns("count to 13"))
            assert said(again) == "similar"
            assert 0.6 < float(again.headers["x-llmgw-cache-similarity"]) < 1
    finally:
        process.kill()
        process.wait(10)


def of(body: dict[str, Any]) -> similar.Question | None:
    found = read("chat", msgspec.json.encode(body), "p", "m")
    assert found is not None
    return similar.question(found, "e")


def test_what_only_the_same_request_answers() -> None:
    assert of(turns(FIRST)) is not None
    parts = [{"type": "text", "text": FIRST}]
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    assert of(zero(messages=[{"role": "user", "content": parts}])) is not None
    for messages in (
        [{"role": "user", "content": [*parts, image]}],
        [
            {"role": "user", "content": [image]},
            {"role": "assistant", "content": "a cat"},
            {"role": "user", "content": "x"},
        ],
        [{"role": "tool", "content": "7", "tool_call_id": "a"}, {"role": "user", "content": "and now?"}],
        [{"role": "user", "content": FIRST}, {"role": "assistant", "content": "well"}],
        [{"role": "user", "content": "x" * 2001}],
        [{"role": "user", "content": "  "}],
    ):
        assert of(zero(messages=messages)) is None, messages
    a, b = of(turns(FIRST)), of(turns(ALIKE))
    assert a is not None
    assert b is not None
    assert a.conversation == b.conversation


numbers = st.lists(st.floats(-1, 1, width=32), min_size=40, max_size=40)


@settings(max_examples=40)
@given(st.lists(numbers, max_size=8), numbers, st.floats(0.5, 1))
def test_the_nearest_are_those_that_cosines_say(others: list[list[float]], mine: list[float], least: float) -> None:
    asked = similar.vector(mine)
    if asked is None:
        return
    index = similar.Index()
    wanted = {}
    for i, other in enumerate([*others, mine]):
        found = similar.vector(other)
        if found is not None:
            index.add(b"%d" % i, b"c", found)
            cosine = sum(x * y for x, y in zip(mine, other, strict=True)) / math.hypot(*mine) / math.hypot(*other)
            if abs(cosine - least) > 1e-4:
                wanted[b"%d" % i] = cosine
    near = {key: likeness for likeness, key in index.nearest(b"c", asked, least)}
    for key, cosine in wanted.items():
        assert (key in near) == (cosine > least)
        assert key not in near or math.isclose(near[key], cosine, abs_tol=1e-4)
    assert index.nearest(b"other", asked, least) == []


def test_four_thousand_are_compared_in_a_moment() -> None:
    drawn = random.Random(5)
    index = similar.Index()
    for i in range(similar.MOST_COMPARED):
        found = similar.vector([drawn.gauss(0, 1) for _ in range(384)])
        assert found is not None
        index.add(b"%d" % i, b"c", found)
    asked = similar.vector([drawn.gauss(0, 1) for _ in range(384)])
    assert asked is not None
    began = time.process_time()
    assert index.nearest(b"c", asked, 0.9) == []
    assert time.process_time() - began < 0.2
    for i in range(similar.MOST_COMPARED):
        index.drop(b"%d" % i)
    assert (len(index), index._conversations) == (0, {})
