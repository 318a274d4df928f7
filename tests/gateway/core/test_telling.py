"""What became of a request, in sentences."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from gateway.core import telling
from gateway.core.ledger import refusals
from gateway.core.ledger.refusals import Limit
from gateway.core.ledger.worst import Worst
from gateway.core.snapshot import LevelLimits
from gateway.core.telling import Told, span, tell
from tenancy.core.limits import Limits

ID = "req_01"


def say(**fields: Any) -> list[str]:
    return [reason.sentence for reason in tell(Told(ID, **fields))]


def test_an_answered_request() -> None:
    found = say(
        outcome="ok", asked="helper", model="orchid-8b", replica="r-1", node="node-1", duration_ms=1234.0,
        route="the soonest first token of 4 replicas: about 65 % of the prompt is cached there",
        prompt_tokens=812, cached_tokens=530, completion_tokens=40, cost=2_100_000,
    )  # fmt: skip
    assert found == [
        "req_01 asked for helper (= orchid-8b), was answered in 1.2 s by r-1 on node-1: the soonest first token of 4 "
        "replicas: about 65 % of the prompt is cached there; 812 prompt tokens (530 cached), 40 answered; "
        "its cost was 0.0021"
    ]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        (
            {"outcome": "ok", "cache": "hit", "duration_ms": 3.0},
            "req_01 asked for m and was given again in 3 ms what the same request had been answered",
        ),
        (
            {"outcome": "client_left", "duration_ms": 3400.0},
            "req_01 asked for m; the client left after 3.4 s, before anything was answered",
        ),
        (
            {"outcome": "client_left", "duration_ms": 3400.0, "ttft_ms": 4.0, "completion_tokens": 7},
            "req_01 asked for m; the client left after 3.4 s, in the middle of its answer; 7 tokens answered",
        ),
        (
            {"outcome": "engine_failed", "duration_ms": 90.0, "code": "engine_failed", "replica": "r-1", "attempts": 3},
            "req_01 asked for m; it failed after 90 ms and 3 attempts (engine_failed); r-1 was tried last",
        ),
        (
            {"outcome": "refused", "status": 429, "code": "rate_limited", "reason": "60 requests a minute are used"},
            "req_01 asked for m and was refused with 429 (rate_limited): 60 requests a minute are used",
        ),
        (
            {"outcome": "unknown"},
            "req_01 asked for m; what became of it is not known: its gateway ended before it could tell",
        ),
    ],
)
def test_other_ends(fields: dict[str, Any], first: str) -> None:
    assert say(asked="m", model="m", **fields)[0] == first


def test_what_is_unknown_is_not_zero() -> None:
    assert say(outcome="ok", asked="m", model="m") == ["req_01 asked for m, was answered in an unknown time"]


def test_the_reasons_name_what_was_tried_and_what_would_change_it() -> None:
    found = tell(
        Told(
            ID, "refused", "m", "m", status=403, code="model_forbidden", key="k1", key_name="laptop (llmgw_Ab…)",
            project_path="a/b/c", hops=("m@r-7: the engine cannot be reached",), queued_ms=1200.0, estimated=True,
        )
    )  # fmt: skip
    by_code = {reason.code: reason for reason in found}
    assert by_code["tried"].command == "llmgw replica show r-7"
    assert by_code["model_forbidden"].command == "llmgw why k1 --model m"
    assert by_code["queued"].sentence == "it waited 1.2 s to be let in"
    assert by_code["who"].sentence == "the key laptop (llmgw_Ab…) asked, for a/b/c"
    assert "estimated" in by_code
    assert found[0].code == "refused"


def test_rows_of_the_books_are_read_as_they_come() -> None:
    row = {"request_id": ID, "outcome": "ok", "hops": None, "tags": None, "cost": None, "more": 1, "asked": "m"}
    assert tell(telling.told(row))[0].sentence.startswith("req_01 asked for m, was answered")


def test_figures_as_people_say_them() -> None:
    assert [span(x) for x in (None, 84.4, 1234.0, 250_000.0)] == ["an unknown time", "84 ms", "1.2 s", "250 s"]


@pytest.mark.parametrize(
    ("level", "limits", "limit", "command"),
    [
        ("key", Limits(rpm=60), Limit.REQUESTS, "llmgw limits set key:k1 --rpm N"),
        ("project", Limits(tpm=60), Limit.TOKENS, "llmgw limits set a/b/c --tpm N"),
        ("team", Limits(concurrent=6), Limit.CONCURRENT, "llmgw limits set a/b --concurrent N"),
        ("organisation", Limits(budget=60), Limit.BUDGET, "llmgw limits set a --budget AMOUNT"),
    ],
)
def test_a_limit_that_was_met_names_its_level(level: str, limits: Limits, limit: Limit, command: str) -> None:
    error = refusals.refusal(LevelLimits(level, "x", limits), limit, 1000, 60, 5, Worst(10, 10, 10, False))
    found = tell(Told(ID, "refused", code=error.name, reason=error.sentence, key="k1", project_path="a/b/c"))
    assert found[1].command == command


def test_every_command_that_a_code_leads_to_exists() -> None:
    for _what, command in telling._CODES.values():
        _, noun, *rest = shlex.split(command)
        parser = load_command_class(get_commands()[noun], noun).create_parser("llmgw", noun)
        parser.parse_args([word if "{" not in word else "x" for word in rest])
