"""Moving a replica's row from state to state: the legal way only, and always with a line in its history."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from fleet import models
from fleet.core.replica import LEGAL, State
from llmgw.cluster.models import Change

log = logging.getLogger(__name__)


def serialise() -> None:
    """Whoever moves replicas takes turns, from here to the end of the transaction."""
    list(Change.objects.select_for_update().filter(name="fleet"))


def move(replica: models.Replica, state: State, now: datetime, **changes: Any) -> bool:
    """Sets the state and `changes`; True: what the gateway is told of this replica may have changed."""
    before = State(replica.state)
    if state is not before and state not in LEGAL[before]:
        raise ValueError(f"{replica.public_id} cannot go from {before} to {state}")
    for name, value in changes.items():
        setattr(replica, name, value)
    if state is not before:
        replica.state, replica.state_since = state.value, now
        if state is State.READY:
            replica.ready_at = now
    replica.save()
    if state is not before or changes.get("reason"):
        record(replica, replica.reason)
    return state is not before


def record(replica: models.Replica, reason: str) -> None:
    """A line in the replica's history."""
    nodes = _nodes(replica)
    models.ReplicaEvent.objects.create(
        replica=replica.public_id, model=replica.model, node=nodes, state=replica.state, reason=reason
    )
    log.info(
        "%s (%s) on %s: %s%s",
        replica.public_id,
        replica.model,
        nodes or "no node",
        replica.state,
        f": {reason}" if reason else "",
    )


RANK = "rank"
"""The state in lines that are about one rank of several."""


def of_rank(shard: models.Shard, node_id: str) -> None:
    """What its node says of one rank of several: which of them the others wait for, and which one died."""
    replica, because = shard.replica, f": {shard.reason}" if shard.reason else ""
    state = shard.observed or "no longer there"
    models.ReplicaEvent.objects.create(
        replica=replica.public_id,
        model=replica.model,
        node=node_id,
        state=RANK,
        reason=f"rank {shard.rank}: {state}{because}",
    )


def end(replica: models.Replica) -> None:
    """The row goes; its history stays."""
    nodes = _nodes(replica)
    models.ReplicaEvent.objects.create(
        replica=replica.public_id, model=replica.model, node=nodes, state="ended", reason=replica.reason
    )
    log.info("%s (%s) ended: %s", replica.public_id, replica.model, replica.reason or "nothing of it runs")
    replica.delete()


def _nodes(replica: models.Replica) -> str:
    """Where its ranks are, the leader's first, as far as a line of history has room."""
    names = ", ".join(s.node.node_id for s in replica.shards.select_related("node"))
    return names if len(names) <= 120 else f"{names[:119]}…"
