"""Streams into whole answers and back, and the store: as values."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.reuse import asked, telling
from gateway.core.reuse.joining import Joined
from gateway.core.reuse.store import OVERHEAD_BYTES, Entry, Store
from gateway.core.snapshot import Reuse
from gateway.core.usage import Usage

texts = st.text(max_size=12)
calls = st.lists(
    st.builds(
        lambda i, n, a: {"id": i, "type": "function", "function": {"name": n, "arguments": a}},
        *(st.text(min_size=1, max_size=6) for _ in range(3)),
    ),
    min_size=1,
    max_size=3,
)
messages = st.builds(
    lambda content, more: {"role": "assistant", "content": content} | {k: v for k, v in more.items() if v},
    st.none() | st.text(min_size=1, max_size=12),
    st.fixed_dictionaries({"reasoning_content": texts, "refusal": texts, "tool_calls": st.just([]) | calls}),
)
logprobs = st.none() | st.lists(st.floats(-9, 0), min_size=1, max_size=3).map(lambda ps: {"content": ps})
counts = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    choices = []
    for index in range(draw(st.integers(1, 3))):
        choice = {"index": index, "message": draw(messages), "finish_reason": draw(st.sampled_from(["stop", "length"]))}
        said = draw(logprobs)
        choices.append(choice | ({"logprobs": said} if said else {}))
    return {"object": "chat.completion", "id": "x", "created": 1, "model": "m", "choices": choices, "usage": counts}


@given(answers())
def test_a_whole_answer_told_as_a_stream_and_put_together_is_the_same(whole: dict[str, Any]) -> None:
    told = telling.stream("chat", msgspec.json.encode(whole), wants_usage=True)
    joined = Joined("chat")
    joined.feed(told)
    assert msgspec.json.decode(joined.body(counts) or b"") == whole


@settings(max_examples=30)
@given(answers(), st.randoms(use_true_random=False))
def test_in_whatever_pieces_it_comes(whole: dict[str, Any], random: Any) -> None:
    """Every text cut in two, choices turn about."""
    queues = []
    for choice in whole["choices"]:
        message, index = choice["message"], choice["index"]
        parts: list[dict[str, Any]] = [{"delta": {"role": "assistant"}}]
        for name in ("reasoning_content", "refusal", "content"):
            text = message.get(name)
            if text:
                at = random.randrange(len(text) + 1)
                parts += [{"delta": {name: piece}} for piece in (text[:at], text[at:])]
        for i, call in enumerate(message.get("tool_calls", ())):
            function = call["function"]
            head = {"index": i, **call, "function": {"name": function["name"], "arguments": ""}}
            tail = {"index": i, "function": {"arguments": function["arguments"]}}
            parts += [{"delta": {"tool_calls": [piece]}} for piece in (head, tail)]
        for said in (choice.get("logprobs") or {"content": []})["content"]:
            parts.append({"delta": {}, "logprobs": {"content": [said]}})
        parts.append({"delta": {}, "finish_reason": choice["finish_reason"]})
        queues.append([{"index": index, "finish_reason": None, **part} for part in parts])
    joined = Joined("chat")
    while queues:
        queue = random.choice(queues)
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [queue.pop(0)]}
        joined.feed(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
        queues = [q for q in queues if q]
    joined.feed(b": keep-alive\n\ndata: [DONE]\n\n")
    assert msgspec.json.decode(joined.body(counts) or b"") == whole


def test_what_has_no_end_is_no_answer() -> None:
    joined = Joined("chat")
    joined.feed(b'data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n')
    assert joined.body(None) is None
    assert Joined("chat").body(None) is None


fields = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts | st.lists(texts, max_size=2))


@given(fields, st.randoms(use_true_random=False))
def test_the_order_of_keys_says_nothing(body: dict[str, Any], random: Any) -> None:
    names = list(body)
    random.shuffle(names)
    keys = {
        asked.read("chat", msgspec.json.encode({n: body[n] for n in order}), "p", "m").key  # type: ignore[union-attr]
        for order in (names, list(body))
    }
    assert len(keys) == 1


def test_what_cannot_be_compared_is_not() -> None:
    assert asked.read("chat", b'{"a": "\\ud800"}', "p", "m") is None
    assert asked.read("chat", b"[1]", "p", "m") is None
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert asked.read("chat", deep, "p", "m") is None


def entry(project: str = "p", size: int = 400, kept_at: float = 0.0) -> Entry:
    return Entry(project, "m", b"x" * size, kept_at, Usage())


HOUR = Reuse(3600.0)
steps = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("pq"), st.integers(0, 3000), st.booleans()), max_size=40)


@given(steps)
def test_the_store_never_holds_more_than_it_may(steps: list[tuple[int, str, int, bool]]) -> None:
    gone: list[bytes] = []
    store = Store(5000, gone.append)
    held: dict[bytes, Entry] = {}
    order: list[bytes] = []
    for number, project, size, look in steps:
        key = b"%d" % number
        if look:
            found = store.get(key, HOUR, 1.0)
            assert (found is not None) == (key in held)
        else:
            held.pop(key, None)
            if store.put(key, entry(project, size)):
                held[key] = entry(project, size)
        if key in held:
            order = [*(k for k in order if k != key), key]
        while sum(e.size for e in held.values()) > 5000:
            oldest = next(k for k in order if k in held)
            del held[oldest]
        assert len(store) == len(held)
        assert store.bytes == sum(e.size for e in held.values()) <= 5000


def test_what_a_project_says_now_decides() -> None:
    store = Store(10_000)
    store.put(b"a", entry(kept_at=100.0))
    assert store.get(b"a", Reuse(50.0), 150.0) is not None
    assert store.get(b"a", Reuse(50.0, since=100.5), 150.0) is None
    store.put(b"a", entry(kept_at=100.0))
    assert store.get(b"a", Reuse(49.0), 150.0) is None
    assert (len(store), store.bytes) == (0, 0)


def test_what_is_stale_is_swept() -> None:
    store = Store(100_000)
    for i in range(10):
        store.put(b"p%d" % i, entry("p", kept_at=float(i)))
        store.put(b"q%d" % i, entry("q", kept_at=float(i)))
    store.sweep({"p": Reuse(5.0), "q": HOUR}.get, 10.0)
    assert len(store) == 15
    store.sweep({"p": Reuse(5.0)}.get, 10.0)
    assert (len(store), store.bytes) == (5, 5 * (400 + OVERHEAD_BYTES))
    store.limit(0)
    assert store.bytes == 0
