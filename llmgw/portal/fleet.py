"""Nodes, replicas and models together, as pages show them: read by the apps' selectors, joined here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from catalog import selectors as catalog
from fleet import selectors

Row = dict[str, Any]

WAITING = ("parked", "lost", "backoff", "pending", "starting", "loading")
"""What is wrong comes first."""
WORST = ("parked", "lost", "refused", "backoff", "away", "unknown", "unsettled", "pending", "starting", "loading")
"""Of nodes and replicas in a list; then whatever else is not ready."""
SHOWN, MOST_WRONG = 12, 50
"""Rows on the page of the whole cluster, and of those that are not well: the rest has a page of its own."""
_AS_TOLD = ("idle", "waiting", "not running")
"""What only the model's own state tells."""
_NEAREST = ("loading", "starting", "backoff", "pending", "parked", "lost", "draining", "stopping")


@dataclass(frozen=True, slots=True)
class Fleet:
    """Rows as the selectors give them; a model's has `state`, `ready` and `copies` from its replicas."""

    nodes: list[Row]
    replicas: list[Row]
    models: list[Row]

    @property
    def waiting(self) -> list[Row]:
        """With who holds the card that it waits for, and when it is expected (None: nobody knows)."""
        of = {m["name"]: m for m in self.models if m["state"] != "serving"}
        return [
            {
                **r,
                "held_by": of.get(r["model"], {}).get("held_by") if r["state"] == "pending" else None,
                "expected": r["next_try_at"] or of.get(r["model"], {}).get("ready_at"),
            }
            for r in sorted(self.replicas, key=lambda r: r["state"] in WAITING and WAITING.index(r["state"]))
            if r["state"] in WAITING
        ]

    @property
    def first_nodes(self) -> list[Row]:
        """Those that are not well, and some of the others."""
        return _first(wrong_first(self.nodes))

    @property
    def first_replicas(self) -> list[Row]:
        return _first(wrong_first(self.replicas))

    @property
    def ready(self) -> int:
        return sum(r["state"] == "ready" for r in self.replicas)

    @property
    def connected(self) -> int:
        return sum(n["connected"] for n in self.nodes)


def wrong_first(rows: list[Row]) -> list[Row]:
    """Nodes or replicas: the worst state first, otherwise as they were."""
    return sorted(rows, key=lambda row: _worst(row["state"]))


def _worst(state: str) -> int:
    if state == "ready":
        return len(WORST) + 1
    return WORST.index(state) if state in WORST else len(WORST)


def _first(rows: list[Row]) -> list[Row]:
    wrong = [row for row in rows if row["state"] != "ready"]
    return wrong[:MOST_WRONG] + rows[len(wrong) : len(wrong) + max(SHOWN - len(wrong), 0)]


def load() -> Fleet:
    """All of it, in a fixed number of queries."""
    replicas = selectors.replicas()
    return Fleet(selectors.nodes(), replicas, models(replicas))


def models(replicas: Iterable[Row]) -> list[Row]:
    """Every model, with what runs of it."""
    of: dict[str, list[Row]] = defaultdict(list)
    for row in replicas:
        of[row["model"]].append(row)
    return [joined(row, of[row["name"]]) for row in catalog.models()]


def joined(row: Row, replicas: list[Row]) -> Row:
    """`wanted` of one that loads on demand: what is wanted now, for somebody asks or asked a moment ago."""
    states = [r["state"] for r in replicas]
    wanted = max(row["wanted"] or 0, len(states)) if row["on_demand"] and not row["stopped"] else row["wanted"]
    ready = states.count("ready")
    return {**row, "state": model_state(row, states), "wanted": wanted, "ready": ready, "copies": len(states)}


def model_state(row: Row, states: Iterable[str]) -> str:
    """serving as soon as one copy answers; else the state of the copy that is nearest to it."""
    present = set(states)
    if "ready" in present:
        return "serving"
    if row["stopped"]:
        return "stopped"
    if row["external"] or row["state"] in _AS_TOLD:
        return str(row["state"])
    return next((s for s in _NEAREST if s in present), "failed" if row["wanted"] is None else "pending")
