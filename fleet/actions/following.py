"""A replica's state follows its shards', as their nodes see them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from django.db.models import F, Q

from agent.wire.facts import NodeFacts
from agent.wire.shard import CARD_HELD, ShardState
from fleet import events, models, spans
from fleet.actions import learning
from fleet.core import cards
from fleet.core import replica as core
from llmgw.cluster.actions import settings as cluster_settings

_CHANGED = frozenset({"fleet", "endpoints"})


def follow(replica_id: int, *, present: bool, now: datetime) -> frozenset[str]:
    """The parts that changed with it. `present`: the node tells of its shard, or of all that it was asked to run."""
    replica = models.Replica.objects.filter(pk=replica_id).first()
    if replica is None:  # another rank's report has ended it
        return frozenset()
    shards = list(replica.shards.select_related("node"))
    if replica.state == core.State.STOPPING and (not present or len(shards) > 1):
        return frozenset()  # each rank of several is let go when its own node says that it has ended
    outcome = _outcome(replica, shards, now)
    if outcome is None:
        return frozenset()
    if outcome.gone:
        _end(replica, shards, now)
        return _CHANGED
    _trace(replica, outcome, len(shards), now)
    return _CHANGED if _move(replica, shards, outcome, now) else frozenset()


def held_by_others(node: models.Node, facts: NodeFacts) -> dict[str, int]:
    """A card from which a start was kept by somebody else's memory is nobody's until it is tried again."""
    kept_off = Q(shard__replica__state=core.State.BACKOFF, shard__replica__reason_code=CARD_HELD)
    claimed = set(node.claims.exclude(kept_off).values_list("device", flat=True))
    return {str(d): held for d, held in cards.foreign(facts.gpus or (), claimed).items()}


def _outcome(replica: models.Replica, shards: Sequence[models.Shard], now: datetime) -> core.Outcome | None:
    ranks = [
        core.Rank(
            ShardState(s.observed) if s.observed else None,
            s.observed_incarnation,
            s.reason,
            s.node.node_id,
            s.since.timestamp() if s.since else None,
            s.cause,
        )
        for s in shards
    ]
    seen = core.Seen(
        state=core.State(replica.state),
        incarnation=replica.incarnation,
        failures=replica.failures,
        since=replica.state_since.timestamp() if replica.state_since else None,
        reason=replica.reason,
        next_try_at=replica.next_try_at.timestamp() if replica.next_try_at else None,
    )
    return core.observed(seen, ranks, cluster_settings.in_force().fleet, now.timestamp())


def _end(replica: models.Replica, shards: Sequence[models.Shard], now: datetime) -> None:
    spans.stopped(replica, now, nodes=len(shards))
    events.end(replica)
    models.Node.objects.filter(pk__in=[s.node_id for s in shards]).update(generation=F("generation") + 1)


def _trace(replica: models.Replica, outcome: core.Outcome, nodes: int, now: datetime) -> None:
    """A start is over when it serves, or has failed."""
    if replica.state not in (core.State.STARTING, core.State.LOADING):
        return
    if outcome.state is core.State.READY:
        spans.started(replica, now, nodes=nodes)
    elif outcome.state in (core.State.BACKOFF, core.State.PARKED):
        spans.started(replica, now, code=outcome.reason_code or "failed", nodes=nodes)


def _move(replica: models.Replica, shards: Sequence[models.Shard], outcome: core.Outcome, now: datetime) -> bool:
    """Whether it is in another state now."""
    ordered = core.together(core.State(replica.state), len(shards))
    moved = events.move(
        replica,
        outcome.state,
        now,
        reason=outcome.reason,
        reason_code=outcome.reason_code,
        failures=outcome.failures,
        next_try_at=datetime.fromtimestamp(outcome.next_try_at, UTC) if outcome.next_try_at is not None else None,
    )
    if ordered != core.together(outcome.state, len(shards)):
        models.Node.objects.filter(shards__replica=replica).update(generation=F("generation") + 1)
    if moved and outcome.state is core.State.READY:
        learning.started(replica, now)
    if outcome.reason_code == CARD_HELD:
        for node in {s.node for s in shards if s.cause == CARD_HELD}:
            node.foreign = held_by_others(node, msgspec.convert(node.facts, NodeFacts))
            node.save(update_fields=["foreign"])
    if outcome.state is core.State.PARKED:
        models.Claim.objects.filter(shard__replica=replica).delete()
    return moved
