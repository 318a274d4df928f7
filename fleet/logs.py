"""The newest lines of an agent's log, or of an engine's: asked of the node that has them."""

from __future__ import annotations

from fleet import models
from fleet.questions import ask
from llmgw.cluster.errors import Conflict, NotFound

MOST_LINES = 1000


def of_agent(node_id: str, lines: int = 100) -> list[str]:
    return _tail(node_id, "agent", lines)


def of_replica(public_id: str, lines: int = 100) -> list[str]:
    """The first rank's log. Where the node cannot tell it, the engine's last words that were reported."""
    shard = models.Shard.objects.filter(replica__public_id=public_id).select_related("node").order_by("rank").first()
    if shard is None:
        if not models.Replica.objects.filter(public_id=public_id).exists():
            raise NotFound("no_such_replica", f"there is no replica {public_id}", "llmgw replica list")
        raise Conflict("not_placed", f"{public_id} is on no node yet", f"llmgw replica show {public_id}")
    try:
        return _tail(shard.node.node_id, f"{public_id}.{shard.rank}", lines)
    except Conflict:
        if shard.last_words:
            return [str(line) for line in shard.last_words][-lines:]
        raise


def _tail(node_id: str, shard_id: str, lines: int) -> list[str]:
    answer = ask(node_id, "log", {"shard_id": shard_id, "lines": max(1, min(lines, MOST_LINES))})
    if not answer.ok:
        raise Conflict("no_log", f"{node_id}: {answer.problem}", f"llmgw node show {node_id}")
    return [str(line) for line in answer.body.get("lines", ())]
