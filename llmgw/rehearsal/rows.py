"""What the rehearsal's store says, as the values that invariants are held against."""

from __future__ import annotations

from collections.abc import Collection

from fleet import models
from fleet.core.replica import State
from gateway.models import Usage
from llmgw.rehearsal.invariants import ReplicaRow, Rows, ShardRow


def load() -> Rows:
    shards = models.Shard.objects.select_related("replica", "node").order_by("replica", "rank")
    claims = models.Claim.objects.select_related("shard__replica", "node")
    return Rows(
        replicas=tuple(
            ReplicaRow(r.public_id, r.model, State(r.state), r.reason_code, r.reason, r.stale)
            for r in models.Replica.objects.all()
        ),
        shards=tuple(
            ShardRow(
                f"{s.replica.public_id}.{s.rank}",
                s.node.node_id,
                s.port,
                tuple(s.devices),
                State(s.replica.state),
                s.replica.incarnation,
                s.replica.model,
            )
            for s in shards
        ),
        claims=tuple((c.node.node_id, c.device, f"{c.shard.replica.public_id}.{c.shard.rank}") for c in claims),
        connected=frozenset(
            models.Node.objects.filter(connected=True).exclude(reported_at=None).values_list("node_id", flat=True)
        ),
    )


def forget() -> None:
    """Every node and every replica, as a store that was lost and made anew."""
    models.Replica.objects.all().delete()
    models.Node.objects.all().delete()


def unbooked(ids: Collection[str]) -> list[str]:
    """Answered requests that have no usage row."""
    wanted, found = list(ids), set()
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        found |= set(Usage.objects.filter(request_id__in=part).values_list("request_id", flat=True))
    return [i for i in wanted if i not in found]
