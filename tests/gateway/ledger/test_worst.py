"""What is held for a request: estimates, and what bounds them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core import request as requests
from gateway.core.ledger import account, refusals
from gateway.core.ledger.refusals import Limit
from gateway.core.ledger.worst import NO_CONTEXT_TOKENS, Estimates, worst
from gateway.core.principal import Principal, resolve
from gateway.core.snapshot import LevelLimits, ModelEntry, Scope, Tenancy
from llmgw.keys import ChatToken, sign_chat
from llmgw.price import Price
from tenancy.core.limits import Limits

PRICE = Price(1000, 2000)


def read(endpoint: str = "chat", **fields: Any) -> requests.Request:
    body = {"model": "m", "messages": [{"role": "user", "content": "abcd" * 24}], **fields}
    return requests.read(endpoint, json.dumps(body, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("fields", "entry", "prompt", "each", "named"),
    [
        ({}, {}, 28, 4096, False),
        ({"max_tokens": 7}, {}, 28, 7, True),
        ({"max_completion_tokens": 7, "max_tokens": 9}, {}, 28, 9, True),
        ({"max_tokens": 7, "n_predict": 900}, {}, 28, 900, True),
        ({"max_tokens": 7, "n_predict": -1}, {}, 28, 4096, False),
        ({"max_tokens": 999_999_999}, {"context_length": 8192}, 28, 8192, False),
        ({"max_tokens": 999_999_999}, {"context_length": 8192, "max_output": 512}, 28, 512, False),
        ({"max_tokens": 999_999_999}, {}, 28, NO_CONTEXT_TOKENS, False),
        ({}, {"context_length": 16}, 16, 16, False),
        ({"max_tokens": 0}, {}, 28, 0, True),
        ({"max_tokens": -1}, {}, 28, 4096, False),
    ],
)
def test_bounds(fields: dict[str, Any], entry: dict[str, Any], prompt: int, each: int, named: bool) -> None:
    model = ModelEntry("m", **entry)
    found = worst(read(**fields), model, PRICE, 4096)
    assert (found.each, found.named) == (each, named)
    assert found.tokens == min(prompt + each, model.context_length or NO_CONTEXT_TOKENS)
    assert found.money == prompt * 1000 + each * 2000


@pytest.mark.parametrize("given", [{}, {"max_tokens": -1}, {"n_predict": -1, "stream": True}, {"max_tokens": 9000}])
def test_the_engine_is_told(given: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **given}).encode()
    sent = json.loads(requests.outgoing(body, requests.read("chat", body), "m", most=50))
    assert sent["max_tokens"] == 50
    assert "n_predict" not in sent


def test_each_answer_counts() -> None:
    assert worst(read(n=3, max_tokens=10), ModelEntry("m"), PRICE, 4096).money == 28 * 1000 + 30 * 2000
    several = read("completions", prompt=["abcd", "abcd"], n=2, max_tokens=10)
    assert worst(several, ModelEntry("m"), PRICE, 4096).tokens == 2 + 40
    assert worst(read("embeddings", input=["abcd", "ab"]), ModelEntry("m"), PRICE, 4096).tokens == 2


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("abcd", 1),
        ("çağ", 2),
        ("你好", 1),
        ([{"type": "text", "text": "abcd" * 10}], 11),
        ([{"type": "image_url", "image_url": {"url": "data:" + "A" * 9000}}], 1500),
        (None, 0),
    ],
)
def test_prompts(content: Any, tokens: int) -> None:
    assert read(messages=[{"role": "assistant", "content": content}]).prompt_tokens == 4 + tokens


def test_tools_and_tokens_count() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 400}}]
    assert read(tools=tools).prompt_tokens > 28 + 100
    assert read("completions", prompt=[1, 2, 3]).prompt_tokens == 3


def test_a_tokenizer_is_learnt() -> None:
    found = Estimates()
    found.learn("m", 100, 250)
    assert found.factor("m") == 2.5
    for _ in range(200):
        found.learn("m", 100, 90)
    assert 1.0 <= found.factor("m") < 1.1
    found.learn("m", 5, 500)
    assert found.factor("m") < 1.1
    assert found.factor("other") == 1.0


def test_levels_that_say_nothing_are_left_out() -> None:
    says, silent = LevelLimits("team", "t", Limits(rpm=5)), LevelLimits("project", "p", Limits())
    found = account.bound((says, silent), LevelLimits("key", "k", Limits(budget=7), "2026-11"))
    assert [(a.name, a.rpm, a.budget, a.period) for a in found.accounts] == [
        ("team:t", 5, -1, ""),
        ("key:k", -1, 7, "2026-11"),
    ]
    assert account.of(Principal(Scope("o", "t", "p"))).accounts == ()


def test_who_chats_without_a_key_has_limits_too() -> None:
    tenancy = Tenancy(projects={"p": Scope("o", "t", "p")}, people=frozenset({"a"}), chat_limits=Limits(rpm=60))
    token = sign_chat("s", ChatToken("a", "p", 2.0))
    (found,) = account.of(resolve(token, tenancy, "s", 1.0)).accounts
    assert (found.name, found.rpm) == ("person:a", 60)


def test_a_refusal_says_whose_what_and_when() -> None:
    found = worst(read(max_tokens=10), ModelEntry("m"), PRICE, 4096)
    level = LevelLimits("team", "t", Limits(5, 100, 2, 10**9), "2026-11", 1_764_547_200.0)
    tokens = refusals.refusal(level, Limit.TOKENS, 1500, 90, 30, found)
    assert tokens.sentence == (
        "this project's team allows 100 tokens a minute: 60 were used, 30 are held by requests under way, and this one "
        "may use 38: try again in 2 s, or with a smaller max_tokens"
    )
    assert tokens.headers() == [(b"retry-after", b"2")]
    money = refusals.refusal(level, Limit.BUDGET, 0, 999_999_999, 0, found)
    assert money.sentence.startswith("this project's team has spent 0.999999999 of its budget of 1.00 until 2025-12-01")
    assert money.headers() == [(b"x-should-retry", b"false")]
    assert refusals.never((level,), found) is None
