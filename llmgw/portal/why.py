"""Why a model does not serve: the reasons on top of its page, the nearest ones first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.wire.reason import Reason
from catalog.selectors import Entry
from fleet import selectors
from fleet.selectors.telling import keep_from_serving
from fleet.selectors.waiting import on_demand
from llmgw.cluster.errors import Refusal
from llmgw.portal.fleet import Row


@dataclass(frozen=True, slots=True)
class Why:
    """`placement` is `explain_placement`'s answer; None where there is nothing to place."""

    reasons: tuple[Reason, ...]
    placement: dict[str, Any] | None = None


def why(entry: Entry, state: str, replicas: list[Row]) -> Why:
    """Everything that keeps the model from serving; no reason while it serves."""
    if entry.definition is None:
        return Why(entry.problems)
    if entry.definition.external is not None:
        return Why(())
    try:
        found = selectors.explain_placement(entry.name)
    except Refusal as e:
        return Why(e.problems)
    if state in ("serving", "stopped"):
        return Why((), found)
    return Why(on_demand(entry.definition) or keep_from_serving(entry, replicas, found), found)
