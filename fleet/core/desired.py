"""What one node is told: its whole wanted state, in one message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.wire.messages import Desired
from agent.wire.shard import Gang, ShardSpec
from fleet.core.replica import ALIVE, State, together
from fleet.core.world import ReplicaView, ShardView


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose order it is: the store, the planner's term, the node's generation."""

    store_id: str
    term: int
    generation: int


def desired(
    node: str,
    replicas: Iterable[ReplicaView],
    stamp: Stamp,
    *,
    settled: bool,
    key: Callable[[str], str],
    taken_over: Iterable[str] = (),
    unwanted: Iterable[str] = (),
) -> Desired:
    """`key` gives a replica's engine key, `taken_over` the shards there that this store may end although another
    started them, `unwanted` the sources whose weights may be deleted there. Each rank of several is told of all of
    them."""
    shards = tuple(
        ShardSpec(
            shard_id=f"{replica.id}.{shard.rank}",
            replica_id=replica.id,
            model=replica.model,
            profile=replica.run,
            source=replica.source,
            port=shard.port,
            key=key(replica.id),
            rank=shard.rank,
            world_size=len(replica.shards),
            devices=shard.devices,
            incarnation=replica.incarnation,
            gang=gang(replica, shard),
        )
        for replica in replicas
        if together(replica.state, len(replica.shards)) and replica.run is not None and replica.source is not None
        for shard in replica.shards
        if shard.node == node and (replica.state is not State.LOST or shard.observed in ALIVE)
    )
    used = {s.source.url for s in shards}
    return Desired(
        stamp.store_id,
        stamp.term,
        stamp.generation,
        shards,
        synced=settled,
        taken_over=tuple(sorted(taken_over)),
        unwanted=tuple(sorted(u for u in unwanted if u not in used)),
    )


def gang(replica: ReplicaView, shard: ShardView) -> Gang | None:
    """What a rank of several is told of the others; None for one alone."""
    if len(replica.shards) < 2 or replica.meeting_port is None:
        return None
    addresses = tuple(s.address for s in sorted(replica.shards, key=lambda s: s.rank))
    return Gang(addresses, replica.meeting_port, shard.link)
