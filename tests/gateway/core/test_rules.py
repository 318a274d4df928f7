"""The pure rules: routing, breakers, retries, ids, what is shown of an engine's words, counts."""

from __future__ import annotations

import json

import pytest

from agent.wire.reason import Reason
from gateway.core import chunk, errors, ids, request, retry, roles, router, sse, usage
from gateway.core.breaker import CLOSED, Breaker
from gateway.core.load import Load, Turn
from gateway.core.retry import Again, Failure, GiveUp, Kind
from gateway.core.router import Ask
from gateway.core.snapshot import Endpoint


def load(name: str, in_flight: int = 0, **fields: object) -> Load:
    breaker = fields.pop("breaker", CLOSED)
    assert isinstance(breaker, Breaker)
    return Load(Endpoint(name, "m", "h", 1, "n", **fields), in_flight, breaker)  # type: ignore[arg-type]


def chosen(loads: list[Load], ask: Ask) -> str:
    found = router.choose(loads, ask)
    return found.code if isinstance(found, Reason) else f"{found.load.name}: {found.reason.sentence}"


OPEN = Breaker(3, 100.0, 0, 0.0, 5.0)


@pytest.mark.parametrize(
    ("loads", "tried", "expected"),
    [
        ([], (), "no_replica"),
        ([load("a", draining=True)], (), "all_draining"),
        ([load("a")], (), "a: the only replica"),
        ([load("a"), load("b", draining=True)], (), "a: the only replica"),
        ([load("a", 1), load("b", 0)], (), "b: the least busy of 2 replicas"),
        ([load("a", 3, parallel=8), load("b", 1)], (), "a: the least busy of 2 replicas"),
        ([load("a", 1, weight=4.0), load("b", 1)], (), "a: the least busy of 2 replicas"),
        ([load("a", breaker=OPEN), load("b", 9)], (), "b: the only one of 2 replicas that has not failed"),
        ([load("a", breaker=OPEN), load("b", 9), load("c", 8)], (), "c: the least busy of 2 replicas, 1 avoided"),
        ([load("a", breaker=OPEN)], (), "a: the only replica"),
        ([load("a"), load("b", 9)], ("a",), "b: the only one of 2 replicas that has not failed"),
        ([load("a")], ("a",), "a: the only replica"),
    ],
)
def test_choose(loads: list[Load], tried: tuple[str, ...], expected: str) -> None:
    assert chosen(loads, Ask(10.0, tried)) == expected


def test_equals_take_turns() -> None:
    loads = [load("a"), load("b"), load("c")]
    assert sorted(_turns(loads, 6)) == list("aabbcc")
    assert sorted(_turns([load("a", weight=3.0), load("b")], 8)) == list("aaaaaabb")


def test_one_that_comes_back_is_not_given_all_that_it_missed() -> None:
    loads = [load("a"), load("b")]
    _turns(loads, 20)
    loads.append(load("c"))
    assert sorted(_turns(loads, 9)) == list("aaabbbccc")


def _turns(loads: list[Load], count: int) -> list[str]:
    """Who gets one request after another."""
    turn = loads[0].turn if loads[0].turns else Turn()
    got = []
    for x in loads:
        x.turn = turn
    for _ in range(count):
        choice = router.choose(loads, Ask(0.0))
        assert not isinstance(choice, Reason)
        choice.load.begin(0.0).end()
        got.append(choice.load.name)
    return got


def decide(failure: Failure, attempts: int = 1, **fields: bool) -> Again | GiveUp:
    given = {"content_sent": False, "others": True, "stale_used": False, **fields}
    return retry.decide(failure, attempts=attempts, retries=2, **given)


def test_retries() -> None:
    reset, stale = Failure(Kind.RESET, "x"), Failure(Kind.STALE, "x")
    assert decide(reset) == Again(0.0)
    assert decide(reset, others=False) == Again(0.2)
    assert decide(reset, 2, others=False) == Again(0.4)
    assert isinstance(decide(reset, 3), GiveUp)
    assert isinstance(decide(reset, content_sent=True), GiveUp)
    assert decide(stale, 3) == Again(0.0, counts=False)
    assert isinstance(decide(stale, 3, stale_used=True), GiveUp)
    assert isinstance(decide(reset, repeatable=False), GiveUp), "it may have been done"
    assert decide(Failure(Kind.CONNECT, "x"), repeatable=False) == Again(0.0), "nobody got it"
    assert not stale.against_replica
    assert not Failure(Kind.STATUS, "x", status=429).against_replica


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Failure(Kind.SILENT, "x"), 504, "engine_timeout"),
        (Failure(Kind.STATUS, "x", "429", 429), 503, "engine_busy"),
        (Failure(Kind.CONNECT, "x"), 502, "engine_failed"),
        (Failure(Kind.REPORTED, "x", "oom"), 502, "oom"),
    ],
)
def test_what_the_client_is_told(failure: Failure, status: int, code: str) -> None:
    error = failure.error()
    assert (error.answer, error.name) == (status, code)


def test_ids_sort_by_time() -> None:
    made = [ids.request_id(ms, 2**80 - 1 - ms) for ms in (0, 1, 1_700_000_000_000, 1_700_000_000_001)]
    assert made == sorted(made)
    assert all(len(i) == 30 and i.startswith("req_") for i in made)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("overloaded at 10.0.0.7:8101", "overloaded at …"),
        ("GET http://engine.internal:80/x?k=1 failed", "GET … failed"),
        ("connect [fe80::1]:80 and db.local:5432", "connect … and …"),
        ("n_ctx 2048, took 1.5 s, v1.2.3", "n_ctx 2048, took 1.5 s, v1.2.3"),
    ],
)
def test_addresses_are_not_shown(said: str, shown: str) -> None:
    assert errors.scrub(said) == shown


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"error":{"code":400,"message":"m","type":"exceed_context_size_error"}}', "m", "context_length_exceeded"),
        (b'{"object":"error","message":"m","code":400}', "m", None),
        (b'{"detail":"m"}', "m", None),
        (b'{"error":"m"}', "m", None),
        (b"<html>", "the engine refused the request with status 400", None),
    ],
)
def test_engines_errors(body: bytes, message: str, code: str | None) -> None:
    said = json.loads(errors.from_engine(400, body).body())["error"]
    assert (said["message"], said["code"]) == (message, code)


def test_usage_is_found_without_parsing() -> None:
    counts = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
    found = usage.find(json.dumps({"x": "usage", "usage": counts, "timings": {"a": {}}}).encode())
    assert found == usage.Usage(5, 7, 3)
    for nothing in (b'{"usage": null}', b"{}", b'{"content":"\\"usage\\":{}"}', b'{"usage":{"prompt_tokens":null}}'):
        assert usage.find(nothing) is None


def test_estimates() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:" + "A" * 1000}}
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 8}, picture]}]}
    assert usage.estimate_prompt(json.dumps(body).encode()) == 2
    assert usage.estimate_prompt(b"[") == 0


def test_a_chunk_keeps_its_bytes_without_usage() -> None:
    assert usage.without(b'{"a": 1.50, "usage":{"x":1},"b":"\\u00e9"}') == b'{"a":1.50,"b":"\\u00e9"}'


def test_look() -> None:
    def content(delta: object, **fields: object) -> bool:
        data = json.dumps({"choices": [{"delta": delta, **fields}]}).encode()
        return chunk.look(sse.Event(data)).content

    assert not content({"role": "assistant"})
    assert not content({"role": "assistant", "content": None})
    assert not content({"content": ""})
    assert content({"content": "x"})
    assert content({"reasoning": "x"})
    assert content({"tool_calls": [{"index": 0}]})
    assert content({}, finish_reason="stop")
    assert content({}, text="x")


def test_the_body_changes_only_where_it_must() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}\n'
    plain = request.read(request.CHAT, body)
    assert request.outgoing(body, plain, "m") == body[:-2] + b',"stream_options":{"include_usage":true}}'
    asked = body.replace(b"true}", b'true,"stream_options":{"include_usage":true}}')
    assert request.outgoing(asked, request.read(request.CHAT, asked), "m") is asked


def test_instructions_first() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:x"}}
    messages = [
        {"role": "user", "content": 1.50},
        {"role": "developer", "content": [{"type": "text", "text": "a"}, picture]},
        {"role": "system", "content": "b"},
        {"role": "system", "content": None},
    ]
    first, *rest = json.loads(roles.instructions_first(json.dumps(messages).encode()))
    assert rest == messages[:1]
    assert first["role"] == "system"
    assert first["content"][:3] == [{"type": "text", "text": "a"}, picture, {"type": "text", "text": "b"}]
    assert b"1.5" in roles.instructions_first(json.dumps(messages).encode())
