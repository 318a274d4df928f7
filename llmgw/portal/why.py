"""Why a model does not serve: the reasons on top of its page, the nearest ones first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.wire.reason import Reason
from catalog.selectors import Entry
from fleet import selectors
from llmgw.cluster.errors import Refusal
from llmgw.portal.fleet import Row

MOST = 3


@dataclass(frozen=True, slots=True)
class Why:
    """`placement` is `explain_placement`'s answer; None where there is nothing to place."""

    reasons: tuple[Reason, ...]
    placement: dict[str, Any] | None = None


def why(entry: Entry, state: str, replicas: list[Row]) -> Why:
    """Everything that keeps the model from serving; no reason while it serves."""
    if entry.definition is None:
        return Why(entry.problems)
    try:
        found = selectors.explain_placement(entry.name)
    except Refusal as e:
        return Why(e.problems)
    return Why(() if state in ("serving", "stopped") else reasons(entry, replicas, found), found)


def reasons(entry: Entry, replicas: list[Row], placement: dict[str, Any]) -> tuple[Reason, ...]:
    """Each different reason of a replica once; where none has one, what placement says. Pure."""
    told = {
        r["reason"]: Reason(r["reason_code"], r["reason"], f"llmgw replica show {r['replica']}")
        for r in replicas
        if r["reason"]
    }
    if told:
        return tuple(told.values())[:MOST]
    if not replicas and entry.definition is not None and entry.definition.scaling.min == 0:
        command = f"llmgw model show {entry.name}"
        return (Reason("none_wanted", "no replica is wanted: its scaling begins at 0", command),)
    if not replicas:
        return (Reason("not_placed", placement["answer"], f"llmgw explain-placement {entry.name}"),)
    return ()
