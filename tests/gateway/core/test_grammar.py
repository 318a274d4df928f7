"""Every rule of the grammar, kept and broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core import grammar
from gateway.core.grammar import Asked, Verdict
from tests.gateway.upstreams import CHUNK, DONE, delta, finish, sse, usage

ROLE = delta(role="assistant", refusal=None)
GOOD = ROLE + delta("é").replace("\\u00e9", "é") + finish()


def call(**part: Any) -> str:
    return delta(tool_calls=[part])


def odd(**fields: Any) -> str:
    chunk = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}], **fields}
    return sse({k: v for k, v in chunk.items() if v is not ...})


CALL = call(index=0, id="c1", type="function", function={"name": "w", "arguments": '{"a":'})
REST = call(index=0, function={"arguments": "1}"})
CALLS = finish("tool_calls")
ERROR = sse({"error": {"message": "boom", "type": "server_error", "code": "x"}})
COUNTED = Asked(usage=True)
NO_SUM = sse({**CHUNK, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 3}})
NULLS = sse({**CHUNK, "choices": [], "usage": {"prompt_tokens": None, "completion_tokens": 1, "total_tokens": 1}})
WITH_CHOICES = sse({**json.loads(finish()[6:]), "usage": json.loads(usage()[6:])["usage"]})


@pytest.mark.parametrize(
    ("body", "asked", "broken"),
    [
        (GOOD + DONE, Asked(), ""),
        (GOOD.replace("\n", "\r\n") + DONE, Asked(), ""),
        (": hello\n\n" + GOOD + DONE, Asked(), ""),
        (GOOD + usage() + DONE, COUNTED, ""),
        (ROLE + CALL + REST + CALLS + DONE, Asked(), ""),
        (ROLE + delta("a") + ERROR, Asked(), ""),
        (GOOD + "data: [DONE]", Asked(), "S1 S11"),
        (GOOD + "nonsense\n\n" + DONE, Asked(), "S1"),
        (GOOD.encode().replace("é".encode(), b"\xc3") + DONE.encode(), Asked(), "S2"),
        (ROLE + "data: : ping\n\n" + finish() + DONE, Asked(), "S3"),
        (ROLE + "data: [1]\n\n" + finish() + DONE, Asked(), "S3"),
        (ROLE + odd(id=...) + finish() + DONE, Asked(), "S4"),
        (ROLE + odd(id="other") + finish() + DONE, Asked(), "S4"),
        (ROLE + odd(created="1") + finish() + DONE, Asked(), "S4"),
        (ROLE + odd(object="chat.completion") + finish() + DONE, Asked(), "S4"),
        (delta("a") + finish() + DONE, Asked(), "S5"),
        (ROLE + delta(role="user") + finish() + DONE, Asked(), "S5"),
        (ROLE + delta("a") + DONE, Asked(), "S6"),
        (ROLE + finish("eos_token") + DONE, Asked(), "S6"),
        (ROLE + finish() + finish() + DONE, Asked(), "S6"),
        (DONE, Asked(), "S6"),
        (GOOD + delta("more") + DONE, Asked(), "S7"),
        (GOOD + DONE, Asked(choices=2), "S8"),
        (ROLE + call(index=0, function={"arguments": "{}"}) + CALLS + DONE, Asked(), "S9"),
        (ROLE + CALL + CALLS + DONE, Asked(), "S9"),
        (ROLE + CALL + call(index=0, id="c2", function={"arguments": "1}"}) + CALLS + DONE, Asked(), "S9"),
        (ROLE + call(id="c1", function={"name": "w"}) + CALLS + DONE, Asked(), "S9"),
        (GOOD + usage() + DONE, Asked(), "S10"),
        (GOOD + odd(choices=[], usage=None) + DONE, Asked(), "S10"),
        (GOOD + DONE, COUNTED, "S10"),
        (GOOD + usage() + usage() + DONE, COUNTED, "S10"),
        (ROLE + WITH_CHOICES + DONE, COUNTED, "S10"),
        (ROLE + usage() + finish() + DONE, COUNTED, "S10"),
        (GOOD + NO_SUM + DONE, COUNTED, "S10"),
        (GOOD + NULLS + DONE, COUNTED, "S10"),
        (GOOD, Asked(), "S11"),
        (GOOD + DONE + DONE, Asked(), "S11"),
        (ROLE + DONE + finish(), Asked(), "S11"),
        (ROLE + ERROR + delta("a"), Asked(), "S11"),
        (ROLE + sse({"error": "boom"}), Asked(), "S12"),
    ],
)
def test_rules(body: str | bytes, asked: Asked, broken: str) -> None:
    found = grammar.check(body if isinstance(body, bytes) else body.encode(), asked)
    assert [f.rule for f in found] == list(grammar.RULES)
    assert " ".join(f.rule for f in found if f.verdict is Verdict.BROKEN) == broken, found


def test_each_rule_can_be_broken() -> None:
    cases = next(m for m in test_rules.pytestmark if m.name == "parametrize").args[1]  # type: ignore[attr-defined]
    assert {rule for _, _, broken in cases for rule in broken.split()} == set(grammar.RULES)


def test_what_nothing_could_break_is_open() -> None:
    found = {f.rule: f.verdict for f in grammar.check((ROLE + delta("a") + finish() + DONE).encode(), Asked())}
    assert {rule for rule, verdict in found.items() if verdict is Verdict.OPEN} == {"S2", "S9", "S12"}
    assert {f.verdict for f in grammar.check(b"", Asked()) if f.rule in ("S1", "S3", "S4", "S5", "S7")} == {
        Verdict.OPEN
    }


def test_a_replacement_character_may_be_the_models_own() -> None:
    body = (ROLE + delta("\ufffd").replace("\\ufffd", "\ufffd") + finish() + DONE).encode()
    assert next(f for f in grammar.check(body, Asked()) if f.rule == "S2").verdict is Verdict.OPEN


def test_completions() -> None:
    def text(said: str, ending: str | None = None) -> str:
        choice = {"index": 0, "text": said, "finish_reason": ending}
        return sse({**CHUNK, "object": "text_completion", "choices": [choice]})

    asked = Asked(grammar.COMPLETIONS)
    assert not grammar.broken((text("a") + text("", "stop") + DONE).encode(), asked)
    assert [f.rule for f in grammar.broken((text("a", "stop") + text("b") + DONE).encode(), asked)] == ["S7"]
