"""The last lines of a log on a node, asked of its agent: bounded, and in words where they cannot be had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.wire.reason import Reason
from fleet.questions import ask
from llmgw.cluster.errors import Refusal

LINES = 200
TIMEOUT_S = 4.0


@dataclass(frozen=True, slots=True)
class Tail:
    """The lines, or why there are none."""

    lines: tuple[str, ...] = ()
    problem: Reason | None = None


def tail(node: str, what: dict[str, Any]) -> Tail:
    """`what` names the log: {"shard_id": …} or {"agent": True}."""
    try:
        answer = ask(node, "log", {**what, "lines": LINES}, timeout_s=TIMEOUT_S)
    except Refusal as e:
        return Tail(problem=e.reason)
    if not answer.ok:
        return Tail(problem=Reason("no_log", answer.problem or "the node has no such log"))
    return Tail(tuple(str(line) for line in answer.body.get("lines", ())))
