"""Replicas that are to end on a machine that is not heard: they end when it is back, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet import models
from fleet.core.replica import State

CODE = "machine_silent"


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a replica, on `node`. `sentence` says since when that is silent, and what ends it."""

    replica: str
    model: str
    node: str
    sentence: str

    @property
    def command(self) -> str:
        return f"llmgw node remove {self.node}"


def left(row: models.Replica) -> Left | None:
    """None: it is not to end, or its machines are heard. `row` with its shards and their nodes."""
    if row.state != State.STOPPING:
        return None
    node = next((s.node for s in row.shards.all() if not s.node.connected), None)
    if node is None:
        return None
    since = f"since {node.last_seen:%Y-%m-%d %H:%M:%S} UTC" if node.last_seen is not None else "from the beginning"
    sentence = f"its machine {node.node_id} has been silent {since}: it ends when that is back, or is removed"
    return Left(row.public_id, row.model, node.node_id, sentence)


def all_left(model: str | None = None) -> tuple[Left, ...]:
    """Of every model, or of one."""
    rows: Iterable[models.Replica] = models.Replica.objects.filter(state=State.STOPPING).prefetch_related(
        "shards__node"
    )
    return tuple(found for row in rows if model in (None, row.model) and (found := left(row)) is not None)
