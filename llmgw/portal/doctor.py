"""What a node's agent finds wrong with its machine, asked of it: bounded, and in words where it does not answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from agent.wire.reason import Reason
from fleet.questions import ask
from llmgw.cluster.errors import Refusal

TIMEOUT_S = 4.0


class Finding(msgspec.Struct, frozen=True):
    """`level`: problem, warning or ok."""

    check: str
    level: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings, the worst first; or why there are none."""

    findings: tuple[Finding, ...] = ()
    problem: Reason | None = None


def examine(node: str) -> Examination:
    """What the node says of itself now."""
    try:
        answer = ask(node, "doctor", {}, timeout_s=TIMEOUT_S)
    except Refusal as e:
        return Examination(problem=e.reason)
    if not answer.ok:
        return Examination(problem=Reason("not_examined", answer.problem or "the node cannot examine itself"))
    return read(answer.body.get("findings"))


def read(findings: Any) -> Examination:
    """An agent of another version may say it otherwise: then that is told."""
    try:
        return Examination(tuple(msgspec.convert(findings or [], list[Finding])))
    except msgspec.ValidationError as e:
        return Examination(problem=Reason("not_understood", f"its answer cannot be read here: {e}"))
