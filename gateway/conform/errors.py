"""Errors: the statuses and shapes that OpenAI's clients act on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from gateway.conform.judgement import Finding, broken, held, left_open
from gateway.conform.target import CHAT, Answer, Target, Unreachable

RULES = {
    "E1": "without a key: 401",
    "E2": "with a wrong key: 401",
    "E3": "an unknown model: 404",
    "E4": "a body that is no JSON: 400",
    "E5": "a chat without messages: 400",
    "E6": "an unknown path: 404",
    "E7": "GET where POST is meant: 405 or 404",
    "E8": "a boolean as text never turns the stream on",
    "E9": "a body of a gigabyte is refused before it is sent: 413",
    "E10": "a prompt longer than the context is refused, not cut",
    "E11": "a long line in a request is served or refused in order",
    "E12": "every error is JSON in OpenAI's shape",
    "E13": "no error repeats the caller's key",
}
CANARY = "canary-of-the-conformance-kit-4f1c"
LONG_BYTES = 300_000
MOST_PROMPT_BYTES = 4_000_000
_CONTEXT = ("context_length", "max_model_len", "n_ctx", "n_ctx_train")


def check(target: Target) -> Iterator[Finding]:
    """Each error that was provoked is also looked at for its shape and for keys in it."""
    seen: list[tuple[str, Answer]] = []

    def provoked(
        rule: str, good: tuple[int, ...], method: str, path: str, body: Any, key: str | None = None
    ) -> Finding:
        answer = target.ask(method, path, body, key=key)
        seen.append((rule, answer))
        return held(rule) if answer.status in good else broken(rule, f"answered with {answer.said()}")

    chat = target.chat(max_tokens=1)
    if target.has_key:
        yield provoked("E1", (401,), "POST", CHAT, chat, "")
        yield provoked("E2", (401,), "POST", CHAT, chat, CANARY)
    else:
        yield from (left_open(rule, "no key was given to the kit") for rule in ("E1", "E2"))
    yield provoked("E3", (404,), "POST", CHAT, {**chat, "model": "no-such-model-here"})
    yield provoked("E4", (400,), "POST", CHAT, b'{"model": ')
    yield provoked("E5", (400, 422), "POST", CHAT, {"model": target.model})
    yield provoked("E6", (404,), "POST", "/v1/no-such-path", {})
    yield provoked("E7", (404, 405), "GET", CHAT, None)
    text = target.ask("POST", CHAT, {**chat, "stream": "false"})
    yield broken("E8", "answered with an event stream") if text.kind == "text/event-stream" else held("E8")
    seen.append(("E8", text))
    yield from _sizes(target, seen)
    yield from _shapes(target, [(rule, a) for rule, a in seen if a.status >= 400])


def _sizes(target: Target, seen: list[tuple[str, Answer]]) -> Iterator[Finding]:
    huge = {"Content-Length": str(1 << 30), "Expect": "100-continue"}
    try:
        answer = target.ask("POST", CHAT, b"", headers=huge, patience_s=2)
    except Unreachable as e:
        yield left_open("E9", f"no answer before the body ({e})")
    else:
        seen.append(("E9", answer))
        yield held("E9") if answer.status == 413 else broken("E9", f"answered with {answer.said()}")
    yield _too_long(target, seen)
    long = target.chat(max_tokens=1, messages=[{"role": "user", "content": "x" * LONG_BYTES}])
    try:
        answer = target.ask("POST", CHAT, long)
    except Unreachable as e:
        yield broken("E11", f"no answer ({e})")
        return
    seen.append(("E11", answer))
    good = answer.status in (200, 400, 413)
    yield held("E11", answer.said()) if good else broken("E11", f"answered with {answer.said()}")


def _too_long(target: Target, seen: list[tuple[str, Answer]]) -> Finding:
    context = _context(target.ask("GET", "/v1/models").json, target.model)
    if context is None:
        return left_open("E10", "/v1/models does not tell the context's length")
    words = context + context // 4
    if words * 2 > MOST_PROMPT_BYTES:
        return left_open("E10", f"a context of {context} tokens is too long to pass here")
    try:
        answer = target.ask(
            "POST", CHAT, target.chat(max_tokens=1, messages=[{"role": "user", "content": "x " * words}])
        )
    except Unreachable as e:
        return broken("E10", f"no answer ({e})")
    seen.append(("E10", answer))
    if answer.status in (400, 413):
        return held("E10", answer.said())
    if answer.status != 200:
        return broken("E10", f"answered with {answer.said()}")
    counts = (answer.json or {}).get("usage") or {}
    counted = counts.get("prompt_tokens")
    if isinstance(counted, int) and counted < words // 2:
        return broken("E10", f"{words} words were cut to {counted} tokens without a word")
    return left_open("E10", f"{words} words were taken as {counted} tokens")


def _context(listed: Any, model: str) -> int | None:
    for entry in (listed or {}).get("data") or []:
        if isinstance(entry, dict) and model in (entry.get("id"), *(entry.get("aliases") or [])):
            flat = {**(entry.get("meta") or {}), **entry}
            return next((flat[k] for k in _CONTEXT if isinstance(flat.get(k), int)), None)
    return None


def _shapes(target: Target, errors: list[tuple[str, Answer]]) -> Iterator[Finding]:
    if not errors:
        yield left_open("E12", "nothing was refused")
        yield left_open("E13", "nothing was refused")
        return
    yield _first("E12", errors, _misshapen)
    secrets: Callable[[Answer], str | None] = lambda a: _repeats(target, a)  # noqa: E731
    yield _first("E13", errors, secrets)


def _first(rule: str, errors: list[tuple[str, Answer]], judge: Callable[[Answer], str | None]) -> Finding:
    for provoked_by, answer in errors:
        if fault := judge(answer):
            return broken(rule, f"{provoked_by}: {fault}")
    return held(rule)


def _misshapen(answer: Answer) -> str | None:
    if answer.kind != "application/json":
        return f"status {answer.status} has the content type '{answer.kind}'"
    error = answer.json.get("error") if isinstance(answer.json, dict) else None
    if not isinstance(error, dict):
        return f"status {answer.status} has no `error` object: {answer.body[:80]!r}"
    odd = [name for name in ("message", "type") if not isinstance(error.get(name), str)]
    if odd:
        return f"status {answer.status} has no `{odd[0]}` in its error: {json.dumps(error)[:80]}"
    return f"status {answer.status} speaks in markup" if re.search(r"<html|<!doctype", error["message"], re.I) else None


def _repeats(target: Target, answer: Answer) -> str | None:
    whole = answer.body + repr(answer.headers).encode()
    if CANARY.encode() in whole or not target.hides_key(whole):
        return f"status {answer.status} repeats the key"
    return None
