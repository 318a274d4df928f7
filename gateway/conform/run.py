"""All checks over one endpoint, in order; each rule with one verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gateway.conform import answers, errors, leaving, streams
from gateway.conform.judgement import Finding, Verdict, joined, left_open
from gateway.conform.target import Target, Unreachable

GROUPS: dict[str, tuple[dict[str, str], Callable[..., Iterable[Finding]]]] = {
    "streams": (streams.RULES, streams.check),
    "answers": (answers.RULES, answers.check),
    "errors": (errors.RULES, errors.check),
    "leaving": (leaving.RULES, leaving.check),
}
RULES = {rule: title for rules, _ in GROUPS.values() for rule, title in rules.items()}


class NoModel(Exception):
    """The endpoint lists no model, and none was named."""


@dataclass(frozen=True, slots=True)
class Report:
    model: str
    findings: tuple[Finding, ...]

    def count(self, verdict: Verdict) -> int:
        return sum(f.verdict is verdict for f in self.findings)

    @property
    def passed(self) -> bool:
        return not self.count(Verdict.BROKEN)

    def document(self) -> dict[str, Any]:
        rules = [
            {"rule": f.rule, "title": RULES[f.rule], "verdict": f.verdict.value, "said": f.sentence}
            for f in self.findings
        ]
        counts = {verdict.value: self.count(verdict) for verdict in Verdict}
        return {"model": self.model, "passed": self.passed, **counts, "rules": rules}


def run(target: Target, only: Iterable[str] = (), together: int = leaving.TOGETHER) -> Report:
    """Raises `Unreachable` or `NoModel` before the first check. `only`: names of groups. `together`: how many long
    requests are begun at once to see what leaving does."""
    target.model = target.model or _first_model(target)
    wanted = list(only) or list(GROUPS)
    found: list[Finding] = []
    for name in wanted:
        rules, check = GROUPS[name]
        of_group: list[Finding] = []
        try:
            of_group.extend(check(target, together) if check is leaving.check else check(target))
        except Unreachable as e:
            of_group.append(Finding(next(iter(rules)), Verdict.BROKEN, f"the endpoint stopped answering ({e})"))
        told = {f.rule: f for f in joined(of_group)}
        found += [told.get(rule) or left_open(rule, "the check did not come so far") for rule in rules]
    return Report(target.model, tuple(found))


def _first_model(target: Target) -> str:
    answer = target.ask("GET", "/v1/models")
    listed = (answer.json or {}).get("data") if isinstance(answer.json, dict) else None
    names = [m["id"] for m in listed or [] if isinstance(m, dict) and m.get("id")]
    if not names:
        raise NoModel(f"/v1/models answered with {answer.said()} and names no model: name one with --model")
    return str(names[0])
