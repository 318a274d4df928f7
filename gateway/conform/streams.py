"""Streams: the grammar over several recordings, and what only headers and times can tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.conform.judgement import Finding, Verdict, broken, held, left_open
from gateway.conform.target import CHAT, COMPLETIONS, Answer, Target
from gateway.core import grammar
from gateway.core.grammar import Asked

RULES = {
    "H1": "a stream is 200 text/event-stream, uncompressed",
    "H2": "events come as they are made, not all at the end",
    **{rule: title for rule, (title, _) in grammar.RULES.items()},
    "H3": "a stream and a whole answer count the same prompt",
}
WITH_TOOL = "chat with a tool"
LEAST_EVENTS = 20
LEAST_S = 0.2
"""A shorter answer does not tell whether it was held back."""
_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def check(target: Target) -> Iterator[Finding]:
    asked_tool = [{"role": "user", "content": "What is the weather in Paris?"}]
    recordings: list[tuple[str, str, dict[str, Any], Asked]] = [
        ("chat", CHAT, target.chat(stream=True), Asked()),
        ("chat with counts", CHAT, target.chat(**_USAGE), Asked(usage=True)),
        ("chat, n=2", CHAT, target.chat(stream=True, n=2), Asked(choices=2)),
        (
            WITH_TOOL,
            CHAT,
            target.chat(stream=True, messages=asked_tool, tools=[_TOOL], tool_choice="required", max_tokens=128),
            Asked(),
        ),
        ("completion", COMPLETIONS, target.completion(stream=True), Asked(grammar.COMPLETIONS)),
        ("completion with counts", COMPLETIONS, target.completion(**_USAGE), Asked(grammar.COMPLETIONS, usage=True)),
    ]
    counted: Answer | None = None
    for name, path, body, asked in recordings:
        answer = target.ask("POST", path, body)
        optional = name not in ("chat", "chat with counts")
        yield from _recorded(name, answer, asked, optional)
        if name == "chat with counts":
            counted = answer
    yield _not_held_back(target)
    yield _same_prompt(target, counted)


def _recorded(name: str, answer: Answer, asked: Asked, optional: bool) -> Iterator[Finding]:
    if (optional and 400 <= answer.status < 500) or answer.status == 501:
        yield from (left_open(rule, f"{name}: refused with {answer.said()}") for rule in ("H1", *grammar.RULES))
        return
    if not answer.streams:
        yield broken("H1", f"{name}: answered with {answer.said()} {answer.kind}")
        return
    if (encoding := answer.headers.get("content-encoding", "identity")) != "identity":
        yield broken("H1", f"{name}: the stream is compressed ({encoding})")
        return
    yield held("H1")
    body = answer.body
    for finding in grammar.check(body, asked):
        if answer.cut and finding.rule == "S1":
            yield broken("S1", f"{name}: the body was cut off ({answer.cut})")
        elif finding.verdict is Verdict.HELD:
            yield finding
        elif finding.verdict is Verdict.OPEN and finding.rule == "S9" and name != WITH_TOOL:
            continue
        else:
            yield Finding(finding.rule, finding.verdict, f"{name}: {finding.sentence}")


def _not_held_back(target: Target) -> Finding:
    answer = long_stream(target)
    if not answer.streams:
        return left_open("H2", f"a long answer was refused with {answer.said()}")
    events = answer.body.count(b"data:")
    if not answer.pieces or events < LEAST_EVENTS:
        return left_open("H2", f"the answer has only {events} events")
    first, last = answer.pieces[0][0], answer.pieces[-1][0]
    if last < LEAST_S:
        return left_open("H2", f"the answer was over in {last * 1000:.0f} ms")
    if first > 0.9 * last:
        return broken("H2", f"the first of {events} events came after {first:.2f} s of {last:.2f} s")
    return held("H2", f"the first event after {first:.2f} s, the last after {last:.2f} s")


def long_request(target: Target, tokens: int, **fields: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "Count from 1 to 5000 in words, without leaving out any number."}]
    return target.chat(messages=said, max_tokens=tokens, ignore_eos=True, **fields)


def long_stream(target: Target, tokens: int = 1500) -> Answer:
    """A long answer; endpoints that do not know `ignore_eos` are asked again without it."""
    answer = target.ask("POST", CHAT, long_request(target, tokens, stream=True))
    if answer.status == 400:
        plain = {k: v for k, v in long_request(target, tokens, stream=True).items() if k != "ignore_eos"}
        return target.ask("POST", CHAT, plain)
    return answer


def _same_prompt(target: Target, counted: Answer | None) -> Finding:
    streamed = [c["usage"] for c in _chunks(counted) if isinstance(c.get("usage"), dict)]
    whole = target.ask("POST", CHAT, target.chat()).json
    counts = whole.get("usage") if isinstance(whole, dict) else None
    if not streamed or not isinstance(counts, dict):
        return left_open("H3", "there are no counts to compare")
    one, other = streamed[-1].get("prompt_tokens"), counts.get("prompt_tokens")
    return held("H3") if one == other else broken("H3", f"{one} tokens streamed, {other} whole")


def _chunks(answer: Answer | None) -> list[dict[str, Any]]:
    return grammar.read(answer.body, Asked()).chunks if answer is not None and answer.streams else []
