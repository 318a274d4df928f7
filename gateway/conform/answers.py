"""Whole answers: their shapes, counts, and the list of models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from gateway.conform.judgement import Finding, broken, held, left_open
from gateway.conform.target import CHAT, COMPLETIONS, Answer, Target
from gateway.core.grammar import ENDINGS

RULES = {
    "W1": "a whole chat has OpenAI's shape and counts that add up",
    "W2": "a whole completion has OpenAI's shape and counts that add up",
    "W3": "embeddings have OpenAI's shape",
    "W4": "/v1/models lists the model",
    "W5": "/v1/models/{id} tells of one model",
    "W6": "null means absent",
    "W7": "n answers are n choices",
}
_NULLS = ("stop", "seed", "tools", "stream", "stream_options", "user", "logit_bias", "response_format")


def check(target: Target) -> Iterator[Finding]:
    chat = target.ask("POST", CHAT, target.chat())
    yield _judged("W1", _no_answer(chat) or _chat(chat.json, 1))
    plain = target.ask("POST", COMPLETIONS, target.completion())
    if plain.status in (400, 404, 405, 501):
        yield left_open("W2", f"refused with {plain.said()}")
    else:
        yield _judged("W2", _no_answer(plain) or _completion(plain.json))
    yield _embeddings(target)
    listed = target.ask("GET", "/v1/models")
    yield _judged("W4", _no_answer(listed) or _listed(listed.json, target.model))
    one = target.ask("GET", f"/v1/models/{quote(target.model, safe='')}")
    yield _judged("W5", _no_answer(one) or _model(one.json))
    nulls = target.ask("POST", CHAT, target.chat(**dict.fromkeys(_NULLS)))
    yield _judged("W6", _no_answer(nulls) or _chat(nulls.json, 1))
    two = target.ask("POST", CHAT, target.chat(n=2))
    if two.status in (400, 422, 501):
        yield left_open("W7", f"refused with {two.said()}")
    else:
        yield _judged("W7", _no_answer(two) or _chat(two.json, 2))


def _judged(rule: str, fault: str | None) -> Finding:
    return broken(rule, fault) if fault else held(rule)


def _no_answer(answer: Answer) -> str | None:
    if answer.status != 200:
        return f"answered with {answer.said()}"
    if answer.kind != "application/json":
        return f"the content type is '{answer.kind}'"
    return None if isinstance(answer.json, dict) else "the body is no JSON object"


def _fields(found: dict[str, Any], wanted: str) -> str | None:
    for name, kind in (("id", str), ("created", int), ("model", str)):
        if not isinstance(found.get(name), kind):
            return f"`{name}` is {found.get(name)!r}"
    return None if found.get("object") == wanted else f"`object` is {found.get('object')!r} and not '{wanted}'"


def _choices(found: dict[str, Any], number: int) -> str | None:
    choices = found.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
        return "`choices` is no list of objects"
    if sorted(str(c.get("index")) for c in choices) != [str(i) for i in range(number)]:
        return f"there are {len(choices)} choices where {number} was asked for, or their indices are wrong"
    odd = [c.get("finish_reason") for c in choices if c.get("finish_reason") not in ENDINGS]
    return f"a choice ends with {odd[0]!r}" if odd else None


def _usage(found: dict[str, Any]) -> str | None:
    counts = found.get("usage")
    if not isinstance(counts, dict):
        return "there are no counts"
    figures: list[Any] = [counts.get(k) for k in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if not all(isinstance(x, int) and x >= 0 for x in figures):
        return f"the counts are no whole numbers: {figures}"
    return None if figures[0] + figures[1] == figures[2] else f"the counts do not add up: {figures}"


def _chat(found: dict[str, Any], number: int) -> str | None:
    fault = _fields(found, "chat.completion") or _choices(found, number) or _usage(found)
    if fault:
        return fault
    for choice in found["choices"]:
        message = choice.get("message")
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return f"a message's role is {message.get('role') if isinstance(message, dict) else message!r}"
        if not isinstance(message.get("content"), str) and not message.get("tool_calls"):
            return "a message has neither text nor tool calls"
    return None


def _completion(found: dict[str, Any]) -> str | None:
    fault = _fields(found, "text_completion") or _choices(found, 1) or _usage(found)
    return fault or (None if isinstance(found["choices"][0].get("text"), str) else "the choice has no text")


def _embeddings(target: Target) -> Finding:
    answer = target.ask("POST", "/v1/embeddings", {"model": target.model, "input": ["a", "b"]})
    if 400 <= answer.status < 500 or answer.status in (500, 501):
        return left_open("W3", f"refused with {answer.said()}")
    if fault := _no_answer(answer):
        return broken("W3", fault)
    data = answer.json.get("data")
    if not isinstance(data, list) or [d.get("index") for d in data if isinstance(d, dict)] != [0, 1]:
        return broken("W3", "there are not two vectors with their indices for two inputs")
    for row in data:
        vector = row.get("embedding")
        if not isinstance(vector, list) or not vector or not all(isinstance(x, (int, float)) for x in vector):
            return broken("W3", "a vector is no list of numbers")
    counts = answer.json.get("usage") or {}
    return held("W3") if isinstance(counts.get("prompt_tokens"), int) else broken("W3", "there are no counts")


def _listed(found: dict[str, Any], model: str) -> str | None:
    data = found.get("data")
    if found.get("object") != "list" or not isinstance(data, list):
        return "it is no list"
    fault = next((f for m in data if (f := _model(m))), None)
    ids = [m["id"] for m in data if isinstance(m, dict) and "id" in m]
    names = ids + [a for m in data if isinstance(m, dict) for a in m.get("aliases") or []]
    return fault or (None if model in names else f"'{model}' is not among {', '.join(map(str, ids))[:200]}")


def _model(found: Any) -> str | None:
    if not isinstance(found, dict) or not isinstance(found.get("id"), str) or found.get("object") != "model":
        return "a model has no id, or is no model"
    return (
        None if isinstance(found.get("created"), int) and "owned_by" in found else "a model lacks created or owned_by"
    )
