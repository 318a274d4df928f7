"""Engines that run on a node and that no row describes: kept until it is decided whether they stay."""

from __future__ import annotations

from collections.abc import Sequence

from agent.wire.shard import ShardObserved, ShardState
from fleet import models

OVER = (ShardState.STOPPED, ShardState.STOPPING, ShardState.FAILED)
"""It runs no more, or not for long."""


def take_in(node: models.Node, unknown: Sequence[ShardObserved], *, foreign: bool) -> set[str]:
    """The parts that changed with them; a new one unsettles its node."""
    rows = {s.shard_id: s for s in models.Stray.objects.filter(node=node)}
    gone = [s.pk for i, s in rows.items() if i not in {o.shard_id for o in unknown}]
    if gone:
        models.Stray.objects.filter(pk__in=gone).delete()
    fresh = False
    for news in unknown:
        row = rows.get(news.shard_id)
        fields = {
            "replica_id": news.replica_id or news.shard_id.rpartition(".")[0],
            "model": news.model or "",
            "port": news.port,
            "fingerprint": news.fingerprint or "",
            "incarnation": news.incarnation,
            "state": news.state.value,
            "address": news.address or "",
            "pid": news.pid,
            "memory_bytes": news.memory_bytes,
        }
        if row is None:
            if news.state in OVER:
                continue  # it runs no more: nothing to decide
            models.Stray.objects.create(node=node, shard_id=news.shard_id, foreign=foreign, **fields)
            fresh = True
        elif any(getattr(row, k) != v for k, v in fields.items()):
            models.Stray.objects.filter(pk=row.pk).update(**fields)
            fresh = fresh or not row.dismissed
    if fresh and node.settled:
        models.Node.objects.filter(pk=node.pk).update(settled=False)
    return {"fleet"} if fresh or gone else set()
