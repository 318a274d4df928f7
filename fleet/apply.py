"""Carrying a plan out: one transaction, if the planner's term stands and nothing has moved since it looked.

The only writer of placements. Each step is one small function; `Stale` sends the caller back to look again.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import F

from agent.wire.shard import ShardState
from fleet import events, models
from fleet.core import plan as steps
from fleet.core.replica import State
from fleet.selectors.world import fleet_version
from llmgw.cluster import holders, leases
from llmgw.cluster.changes import announce

LEASE = "fleet.reconcile"
"""Who plans; its term is in every desired state."""


class Stale(Exception):
    """The plan was made from a world that has moved, or under a term that is over."""


def commit(plan: steps.Plan, *, version: int, held: leases.Held, now: float) -> frozenset[str]:
    """Writes the plan; the ids of the nodes whose desired state it moved. Raises `Stale`."""
    if not plan:
        return frozenset()
    try:
        with transaction.atomic():
            if not leases.is_held(held):
                raise Stale(f"term {held.term} is over")
            events.serialise()
            if fleet_version() != version:
                raise Stale("the fleet has moved")
            writing = _Writing(now)
            for step in plan.steps:
                _WRITERS[type(step)](writing, step)
            touched = writing.finish()
            announce("fleet", *writing.parts)
            return touched
    except IntegrityError as e:  # a port or a card that somebody else has just claimed
        raise Stale(str(e)) from e


class _Writing:
    """One commit under way: which nodes and which published parts it touches."""

    def __init__(self, now: float) -> None:
        self.now = datetime.fromtimestamp(now, UTC)
        self.nodes: set[int] = set()
        self.parts: set[str] = set()
        self._by_name: dict[str, models.Node] = {}

    def node(self, name: str) -> models.Node:
        if name not in self._by_name:
            try:
                self._by_name[name] = models.Node.objects.get(node_id=name)
            except models.Node.DoesNotExist:
                raise Stale(f"the node {name} is gone") from None
        return self._by_name[name]

    def replica(self, public_id: str) -> models.Replica:
        try:
            return models.Replica.objects.prefetch_related("shards").get(public_id=public_id)
        except models.Replica.DoesNotExist:
            raise Stale(f"the replica {public_id} is gone") from None

    def move(self, replica: models.Replica, state: State, **changes: Any) -> None:
        """A replica to `state`, with its event; its nodes are touched."""
        if events.move(replica, state, self.now, **changes):
            self.parts.add("endpoints")
        self.touch(replica)

    def touch(self, replica: models.Replica) -> None:
        self.nodes.update(s.node_id for s in replica.shards.all())

    def finish(self) -> frozenset[str]:
        if not self.nodes:
            return frozenset()
        models.Node.objects.filter(pk__in=self.nodes).update(generation=F("generation") + 1)
        return frozenset(models.Node.objects.filter(pk__in=self.nodes).values_list("node_id", flat=True))


def _place(w: _Writing, step: steps.Place) -> None:
    spec = {"profile": msgspec.to_builtins(step.run), "source": msgspec.to_builtins(step.source)}
    if step.replica:
        replica = w.replica(step.replica)
    else:
        replica = models.Replica(model=step.model, state_since=w.now)
        replica.save(force_insert=True)
    for rank, seat in enumerate(step.seats):
        node = w.node(seat.node)
        _seated(replica, rank, node, seat)
        w.nodes.add(node.pk)
    replica.fabric, replica.meeting_port = step.fabric, step.meeting_port
    replica.save(update_fields=["fabric", "meeting_port"])
    w.move(
        replica,
        State.STARTING,
        profile=step.profile,
        spec=spec,
        reason="",
        reason_code="",
        next_try_at=None,
        held_by="",
        free_at=None,
        placed_at=w.now,
    )


def _want(w: _Writing, step: steps.Want) -> None:
    replica = models.Replica.objects.create(
        model=step.model,
        state_since=w.now,
        reason=step.reason.sentence,
        reason_code=step.reason.code,
        held_by=step.held_by,
        free_at=_moment(step.free_at),
    )
    events.record(replica, step.reason.sentence)
    w.parts.add("endpoints")


def _hold(w: _Writing, step: steps.Hold) -> None:
    models.Replica.objects.filter(public_id=step.replica).update(
        reason=step.reason.sentence,
        reason_code=step.reason.code,
        held_by=step.held_by,
        free_at=_moment(step.free_at),
    )
    if step.kept:
        events.record(w.replica(step.replica), step.reason.sentence)


def _retry(w: _Writing, step: steps.Retry) -> None:
    replica = w.replica(step.replica)
    for shard, port in zip(replica.shards.all(), step.ports, strict=True):
        models.Shard.objects.filter(pk=shard.pk).update(port=port)
    reason = f"tried again; before: {replica.reason}" if replica.reason else ""
    w.move(
        replica,
        State.STARTING,
        incarnation=replica.incarnation + 1,
        next_try_at=None,
        reason=reason,
        meeting_port=step.meeting_port,
        placed_at=w.now,
    )


def _lose(w: _Writing, step: steps.Lose) -> None:
    w.move(w.replica(step.replica), State.LOST, reason=step.reason.sentence, reason_code=step.reason.code)


def _drain(w: _Writing, step: steps.Drain) -> None:
    w.move(w.replica(step.replica), State.DRAINING, reason=step.reason.sentence, reason_code=step.reason.code)


def _stop(w: _Writing, step: steps.Stop) -> None:
    w.move(w.replica(step.replica), State.STOPPING, reason=step.reason.sentence, reason_code=step.reason.code)


def _forget(w: _Writing, step: steps.Forget) -> None:
    replica = w.replica(step.replica)
    w.touch(replica)
    events.end(replica)
    w.parts.add("endpoints")


def _flag(w: _Writing, step: steps.Flag) -> None:
    models.Replica.objects.filter(public_id=step.replica).update(stale=step.stale)


def _adopt(w: _Writing, step: steps.Adopt) -> None:
    replica = models.Replica.objects.create(
        public_id=step.replica,
        model=step.model,
        profile=step.profile,
        spec={"profile": msgspec.to_builtins(step.run), "source": msgspec.to_builtins(step.source)},
        incarnation=step.incarnation,
        fabric=step.fabric,
        meeting_port=step.meeting_port,
        adopted=True,
        state_since=w.now,
    )
    for rank, (seat, state) in enumerate(zip(step.seats, step.states, strict=True)):
        _adopt_rank(w, step, replica, rank, seat, state)
    w.move(replica, State.STARTING, reason="adopted: it ran already")
    if step.state in (ShardState.LOADING, ShardState.READY):
        w.move(replica, State(step.state))


def _adopt_rank(
    w: _Writing, step: steps.Adopt, replica: models.Replica, rank: int, seat: steps.Seat, state: ShardState
) -> None:
    node = w.node(seat.node)
    stray = models.Stray.objects.filter(node=node, shard_id=step.shard_ids[rank]).first()
    if stray is None:
        raise Stale(f"{step.shard_ids[rank]} is not reported any more")
    shard = _seated(replica, rank, node, seat)
    models.Shard.objects.filter(pk=shard.pk).update(
        observed=state,
        observed_incarnation=step.incarnation,
        observed_at=w.now,
        since=w.now,
        pid=stray.pid,
        address=stray.address,
        memory_measured_bytes=stray.memory_bytes,
    )
    stray.delete()
    w.nodes.add(node.pk)


def _seated(replica: models.Replica, rank: int, node: models.Node, seat: steps.Seat) -> models.Shard:
    """The rank's row, with what it claims."""
    shard = models.Shard.objects.create(
        replica=replica,
        rank=rank,
        node=node,
        port=seat.port,
        devices=list(seat.devices),
        cpu_cores=seat.cpu_cores,
        memory_bytes=seat.memory_bytes,
        node_address=seat.address,
        link=msgspec.to_builtins(seat.link) if seat.link is not None else {},
    )
    models.Claim.objects.bulk_create(models.Claim(node=node, device=d, shard=shard) for d in seat.devices)
    return shard


def _settle(w: _Writing, step: steps.Settle) -> None:
    node = w.node(step.node)
    node.strays.update(dismissed=True)
    models.Node.objects.filter(pk=node.pk).update(settled=True)
    w.nodes.add(node.pk)


_WRITERS: dict[type, Callable[[_Writing, Any], None]] = {
    steps.Place: _place,
    steps.Want: _want,
    steps.Hold: _hold,
    steps.Retry: _retry,
    steps.Lose: _lose,
    steps.Drain: _drain,
    steps.Stop: _stop,
    steps.Forget: _forget,
    steps.Flag: _flag,
    steps.Adopt: _adopt,
    steps.Settle: _settle,
}


def _moment(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at is not None else None


def holder() -> str:
    """This process, as a lease knows it."""
    return _named(os.getpid())  # a fork is another process


@functools.cache
def _named(pid: int) -> str:
    return holders.this_process("planner")
