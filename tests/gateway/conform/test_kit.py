"""Each check of the kit is seen to fail once, on an endpoint with that one fault; without a fault all of them hold."""

from __future__ import annotations

import pytest

from gateway.conform import run as kit
from gateway.conform.judgement import Verdict
from gateway.conform.target import Target
from gateway.core.grammar import Finding
from tests.gateway.conform.standin import KEY, MODEL, StandIn

ALSO = {"S12": {"S11"}, "W1": {"W6", "W7"}}
"""What else a fault may break."""


def check(fault: str, *groups: str) -> dict[str, Finding]:
    with StandIn(fault) as endpoint:
        model = MODEL if fault == "W4" else ""
        report = kit.run(Target(endpoint.url, KEY, model), groups)
        endpoint.shutdown()
    return {f.rule: f for f in report.findings}


def test_all_hold() -> None:
    found = check("")
    assert list(found) == list(kit.RULES)
    odd = {r: (f.verdict.value, f.sentence) for r, f in found.items() if f.verdict is not Verdict.HELD}
    assert list(odd) == ["S12"], odd  # no stream of it ends with an error


@pytest.mark.parametrize("rule", kit.RULES)
def test_each_can_fail(rule: str) -> None:
    group = next(name for name, (rules, _) in kit.GROUPS.items() if rule in rules)
    found = check(rule, group)
    assert found[rule].verdict is Verdict.BROKEN, found[rule]
    assert found[rule].sentence
    others = {r for r, f in found.items() if f.verdict is Verdict.BROKEN} - {rule}
    assert others <= ALSO.get(rule, set()), {r: found[r].sentence for r in others}


def test_what_cannot_be_told_is_said() -> None:
    with StandIn() as endpoint:
        report = kit.run(Target(endpoint.url, KEY), ["leaving"], together=1)
        endpoint.shutdown()
    assert {f.verdict for f in report.findings} == {Verdict.OPEN}
    assert "made nobody wait" in report.findings[0].sentence
    assert report.passed
