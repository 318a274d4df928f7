"""What a check found of each rule, and how findings about one rule add up."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.grammar import Finding, Verdict

__all__ = ["Finding", "Verdict", "broken", "held", "joined", "left_open"]


def held(rule: str, sentence: str = "") -> Finding:
    return Finding(rule, Verdict.HELD, sentence)


def broken(rule: str, sentence: str) -> Finding:
    return Finding(rule, Verdict.BROKEN, sentence)


def left_open(rule: str, sentence: str) -> Finding:
    return Finding(rule, Verdict.OPEN, sentence)


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """One a rule, in order of first mention: broken where it ever was, else held where it ever was."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    return [_worst(found) for found in by_rule.values()]


def _worst(found: list[Finding]) -> Finding:
    for verdict in (Verdict.BROKEN, Verdict.HELD):
        for finding in found:
            if finding.verdict is verdict:
                return finding
    return found[0]
