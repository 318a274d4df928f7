"""What one replica needs by itself, whatever its model wants: it is gone, lost, drained long enough, or ready to try
again. Pure."""

from __future__ import annotations

from agent.wire.reason import Reason
from agent.wire.shard import CARD_HELD, ShardState
from fleet.core import room, swap
from fleet.core.draft import Draft
from fleet.core.plan import Forget, Lose, Retry, Step, Stop
from fleet.core.replica import State
from fleet.core.world import ReplicaView

_PLACED = frozenset({State.STARTING, State.LOADING, State.READY, State.BACKOFF})


def tend(draft: Draft, replica: ReplicaView) -> bool:
    """Adds the step that it needs; whether it counts for its model."""
    if replica.state in _PLACED:
        if (step := _over(draft, replica)) is not None:
            draft.steps.append(step)
            return False
        if replica.state is State.BACKOFF and (retry := _again(draft, replica)) is not None:
            draft.steps.append(retry)
        return True
    if replica.state in (State.PENDING, State.PARKED):
        return True
    step = _lost(draft, replica) if replica.state is State.LOST else _leaving(draft, replica)
    if step is not None:
        draft.steps.append(step)
    return False


def _leaving(draft: Draft, replica: ReplicaView) -> Step | None:
    if not replica.shards:
        return Forget(replica.id)
    if replica.state is State.DRAINING and _drained_long_enough(draft, replica):
        return Stop(replica.id, Reason(replica.reason_code or "drained", replica.reason))
    return None


def _lost(draft: Draft, replica: ReplicaView) -> Step | None:
    if not replica.shards:
        return Forget(replica.id)
    if _ended_while_away(draft, replica):
        return Stop(replica.id, Reason("lost", "it ended while its node was away"))
    if draft.world.synced and (stopped := _stopped(draft, replica.model)) is not None:
        return Stop(replica.id, stopped)
    return None


def _over(draft: Draft, replica: ReplicaView) -> Step | None:
    """Of one that is placed: None where it goes on."""
    if not replica.shards:  # its node was removed
        return Forget(replica.id)
    if replica.run is not None and 1 < replica.run.nodes != len(replica.shards):
        return Stop(replica.id, Reason("rank_gone", "a rank of it is gone with its node"))
    if not draft.world.synced:
        return None
    away = next((s.node for s in replica.shards if s.node in draft.lost), None) if draft.lost else None
    if away is not None:
        if (stopped := _stopped(draft, replica.model)) is not None:
            return Stop(replica.id, stopped)
        sentence = f"{away} has not been heard for {draft.world.settings.node_lost_s:.0f} s"
        reason = Reason("node_lost", sentence, f"llmgw node show {away}")
        # The other ranks of several are nothing without it, and hold cards that the next one needs.
        return Stop(replica.id, reason) if len(replica.shards) > 1 else Lose(replica.id, reason)
    if replica.state is State.BACKOFF and (others := _held_by_others(draft, replica)):
        return Stop(replica.id, others)
    return None


def _again(draft: Draft, replica: ReplicaView) -> Retry | None:
    """Of one that failed to start, when its pause is over."""
    if replica.next_try_at is not None and replica.next_try_at > draft.now:
        return None
    if not _present(draft, replica):
        return None
    ports = tuple(_another_port(draft, s.node, s.port) for s in replica.shards)
    meeting = replica.meeting_port
    if meeting is not None:
        meeting = _another_port(draft, replica.shards[0].node, max(meeting, ports[0]))
    return Retry(replica.id, ports, meeting)


def _drained_long_enough(draft: Draft, replica: ReplicaView) -> bool:
    count = draft.counts.get(replica.model)
    return swap.drained(draft.world, replica, draft.now, served_on=count is not None and count.replicas > 0)


def _ended_while_away(draft: Draft, replica: ReplicaView) -> bool:
    gone = all(s.observed in (None, ShardState.STOPPED, ShardState.FAILED) for s in replica.shards)
    return gone and _present(draft, replica)


def _stopped(draft: Draft, model: str) -> Reason | None:
    """Why nothing of the model is to run, where somebody has said so: not even what may come back with its node."""
    if model not in draft.models:
        return Reason("model_removed", f"the model {model} was removed")
    count = draft.counts[model]
    return None if count.replicas or count.on_demand else count.reason


def _held_by_others(draft: Draft, replica: ReplicaView) -> Reason | None:
    """It was kept from a card that others hold, and still do: it is placed anew, where there is another."""
    if replica.reason_code != CARD_HELD:
        return None
    held = any(d in draft.nodes[s.node].foreign for s in replica.shards if s.node in draft.nodes for d in s.devices)
    return Reason(CARD_HELD, replica.reason) if held else None


def _present(draft: Draft, replica: ReplicaView) -> bool:
    """None of its nodes is away."""
    nodes = (draft.nodes.get(s.node) for s in replica.shards)
    return all(n is None or (n.connected and n.reported and not n.lost) for n in nodes)


def _another_port(draft: Draft, node: str, port: int) -> int:
    """The next one that is free on the node; its own where there is no other."""
    first, last = draft.world.settings.first_port, draft.world.settings.last_port
    taken = draft.rooms[node].ports
    start = min(max(port + 1, first), last + 1)
    found = room.first_free(taken, (*range(start, last + 1), *range(first, start)))
    if found is None:
        return port
    taken.add(found)
    return found
