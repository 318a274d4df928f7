"""What breaks prefixes: one request after another, with the finding that they must give."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from gateway.core import kept
from gateway.core.lint import prompt
from gateway.core.lint.judge import ADVICE, Finding, Judgement, judge
from gateway.models import KeptRequest, Usage
from llmgw.cluster.models import AuditEntry
from tenancy.models import Organisation, Project, Team

RULES = "You are a helper of a library. Answer shortly and kindly, and name the shelf. " * 4
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Looks into the catalogue. " * 4, "parameters": {}}}
    for name in ("find", "lend", "give_back")
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
OTHER_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}


def body(system: str, *turns: str, **fields: Any) -> dict[str, Any]:
    roles = ["user", "assistant"] * len(turns)
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    messages += [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]
    return {"model": "m", "messages": messages, **fields}


def judged(bodies: Sequence[dict[str, Any]], sessions: Sequence[str] | None = None) -> Judgement:
    prompts = (prompt.read(f"line {i}", sessions[i - 1] if sessions else "", each) for i, each in enumerate(bodies, 1))
    return judge(p for p in prompts if p is not None)


def only(*bodies: dict[str, Any]) -> Finding:
    [finding] = judged(bodies).findings
    return finding


def flipped(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": dict(reversed(tool["function"].items()))}


CALLED = {"role": "assistant", "content": RULES, "tool_calls": [{"id": "call_1", "function": {"name": "find"}}]}
CALLED_AGAIN = {**CALLED, "tool_calls": [{"id": "call_2", "function": {"name": "find"}}]}
LATER = {"role": "user", "content": RULES}

PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "timestamp": (
        body(f"It is 2026-11-29T18:54:57Z. {RULES}", "a?"),
        body(f"It is 2026-11-29T18:55:03Z. {RULES}", "b?"),
    ),
    "date": (body(f"Today is 29 November 2026. {RULES}", "a?"), body(f"Today is 30 November 2026. {RULES}", "b?")),
    "uuid": (
        body(f"Session 0b5f9c8e-7d1a-4c3b-9e2f-1a2b3c4d5e6f. {RULES}", "a?"),
        body(f"Session 9c1d2e3f-4a5b-4c6d-8e9f-0a1b2c3d4e5f. {RULES}", "a?"),
    ),
    "random_id": (body(f"Trace req_8f3kQ29dLm. {RULES}", "a?"), body(f"Trace req_Zk19xPq77a. {RULES}", "a?")),
    "white_space": (body(f"Be kind.\n{RULES}", "a?"), body(f"Be kind.\r\n\n{RULES}", "a?")),
    "keys_reordered": (
        body(RULES, "a?", tools=TOOLS),
        body(RULES, "a?", tools=[flipped(tool) for tool in TOOLS]),
    ),
    "tools_reordered": (body(RULES, "a?", tools=TOOLS), body(RULES, "a?", tools=TOOLS[::-1])),
    "tools_changed": (body(RULES, "a?", tools=TOOLS), body(RULES, "a?", tools=TOOLS[:2])),
    "changing_ids": (
        {"model": "m", "messages": [CALLED, LATER]},
        {"model": "m", "messages": [CALLED_AGAIN, LATER]},
    ),
    "image_first": (
        {"model": "m", "messages": [{"role": "user", "content": [IMAGE, {"type": "text", "text": RULES}]}]},
        {"model": "m", "messages": [{"role": "user", "content": [OTHER_IMAGE, {"type": "text", "text": RULES}]}]},
    ),
    "history_trimmed": (
        body("Be kind.", "one?", RULES, "two?", RULES, "three?"),
        body("Be kind.", "two?", RULES, "three?", RULES, "four?"),
    ),
    "varying_text": (body(f"You help Ayşe. {RULES}", "a?"), body(f"You help Deniz. {RULES}", "a?")),
}


def test_there_is_a_pair_for_every_finding() -> None:
    assert set(PAIRS) == set(ADVICE)


@pytest.mark.parametrize("code", PAIRS)
def test_what_it_is_called(code: str) -> None:
    before, after = PAIRS[code]
    found = only(before, after)
    assert found.code == code
    assert (found.times, found.before, found.request) == (1, "line 1", "line 2")
    assert found.lost_tokens >= 16
    assert found.advice


def test_where_they_part_and_what_it_costs() -> None:
    found = only(*PAIRS["timestamp"])
    assert (found.path, found.at_character) == ("messages[0].content", len("It is 2026-11-29T18:5"))
    assert (found.was, found.now) == ("2026-11-29T18:54:57Z.", "2026-11-29T18:55:03Z.")
    assert abs(found.lost_tokens - len(RULES) // 4) <= 1, "the rules were read anew, the question would have been"
    with_tools = [{**each, "tools": TOOLS} for each in PAIRS["timestamp"]]
    tools = sum(len(json.dumps(tool)) for tool in TOOLS)
    assert only(*with_tools).at_byte == found.at_byte + tools, "tools stand before the messages"
    ayse = only(*PAIRS["varying_text"])
    assert (ayse.was, ayse.now) == ("Ayşe.", "Deniz.")


def test_json_in_a_text_with_its_keys_in_another_order() -> None:
    record = {"name": RULES, "shelf": 4, "lent": False}
    first = body(json.dumps(record), "a?")
    again = body(json.dumps(dict(reversed(record.items()))), "a?")
    assert only(first, again).code == "keys_reordered"


def test_a_conversation_that_goes_on_breaks_nothing() -> None:
    turns = ["one?", RULES, "two?", RULES, "three?"]
    found = judged([body(RULES, *turns[:n], tools=TOOLS) for n in (1, 3, 5)])
    assert (found.findings, found.compared, found.lost_tokens) == ((), 2, 0)


def test_other_questions_with_the_same_rules_break_nothing() -> None:
    assert judged([body(RULES, question) for question in ("who?", "what?", "where is it?")]).findings == ()


def test_sessions_are_looked_at_apart_and_faults_added_up() -> None:
    bodies = [body(f"It is 12:0{i}. {RULES}", "a?") for i in range(6)]
    found = judged(bodies, ["a", "b"] * 3)
    assert (found.requests, found.sessions, found.compared) == (6, 2, 4)
    [finding] = found.findings
    assert (finding.code, finding.times) == ("timestamp", 4)
    assert found.lost_tokens == finding.lost_tokens > 4 * 70
    assert judged(bodies, list("abcdef")).compared == 0


def test_one_alone_is_told_what_looks_as_if_it_would_vary() -> None:
    found = judged([body(f"It is 2026-11-29 18:54. {RULES}", "a?")])
    [finding] = found.findings
    assert (finding.code, finding.times, finding.now) == ("timestamp", 0, "2026-11-29 18:54")
    assert judged([body(f"{RULES} It is 18:54.", "a?")]).findings == (), "at the end it costs nothing"
    [finding] = judged([PAIRS["image_first"][0]]).findings
    assert finding.code == "image_first"


def test_embeddings_have_no_prefix() -> None:
    assert judged([{"model": "m", "input": "x"}]).requests == 0


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def lint(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            call_command("cache", "lint", *arguments)
        except SystemExit as e:
            code = int(e.code or 0)
        return code, *capsys.readouterr()

    file = tmp_path / "requests.jsonl"
    before, after = PAIRS["timestamp"]
    lines = [{"session": "s", "body": before}, {"session": "s", "id": "second", "body": after}]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    code, out, _ = lint(str(file), "--json")
    [finding] = json.loads(out)["findings"]
    assert (code, finding["code"], finding["request"]) == (1, "timestamp", "second")
    code, out, _ = lint("-", stdin=file.read_text())
    assert code == 1
    assert "tell the time in the last user message" in out
    assert lint("-", stdin=json.dumps(before | {"messages": before["messages"][1:]}))[0] == 0
    code, _, told = lint("-", stdin="{")
    assert (code, "not JSON" in told) == (2, True)
    assert lint(str(tmp_path / "none"))[0] == 2
    assert lint()[0] == 2


@pytest.mark.django_db
def test_a_projects_kept_requests(capsys: pytest.CaptureFixture[str]) -> None:
    team = Team.objects.create(name="ml", organisation=Organisation.objects.create(name="acme"))
    project = Project.objects.create(name="train", team=team)
    with pytest.raises(SystemExit):
        call_command("cache", "lint", "--project", project.path)
    assert "llmgw keep set acme/ml/train" in capsys.readouterr().err
    for i, sent in enumerate(PAIRS["uuid"]):
        data, at = json.dumps(sent).encode(), timezone.now() + timedelta(seconds=i)
        Usage.objects.create(request_id=f"req_{i}", at=at, endpoint="chat", model="m", outcome="ok", session="s")
        KeptRequest.objects.create(
            request_id=f"req_{i}", at=at, project=project.public_id, endpoint="chat", model="m", stream=False,
            request=kept.packed(data), answer=kept.packed(b"{}"), request_bytes=len(data), answer_bytes=2,
        )  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        call_command("cache", "lint", "--project", project.path, "--json")
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert (ended.value.code, finding["code"], finding["before"], finding["request"]) == (1, "uuid", "req_0", "req_1")
    assert AuditEntry.objects.get(action="kept.lint").subject == project.path
