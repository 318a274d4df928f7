"""What a parked replica says to whoever places the next one. Pure.

It carries nothing and holds nothing, so another is tried in its stead, and not where it failed: its row is the mark
that keeps others from that node, until somebody retries it or the definition changes. What fails on two nodes and
serves nowhere fails by itself: then no third node is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.wire.shard import Profile, Source
from fleet.core.replica import TOO_SMALL, State
from fleet.core.room import Rooms
from fleet.core.world import ReplicaView

ENOUGH = 2
"""Nodes on which it failed, where it serves on none."""


def tries(parked: Sequence[ReplicaView], live: Iterable[ReplicaView], missing: int) -> int:
    """How many replicas are tried elsewhere in the stead of those that are parked."""
    serves = any(r.state is State.READY for r in live)
    failed = ((r.reason_code, [s.node for s in r.shards]) for r in parked)
    return 0 if its_own(failed, serves=serves) else min(len(parked), missing)


def its_own(parked: Iterable[tuple[str, Sequence[str]]], *, serves: bool) -> bool:
    """Whether it is the model's own fault; `parked`: the code of each and where it failed."""
    places = {tuple(sorted(nodes)) for code, nodes in parked if code not in TOO_SMALL}
    return not serves and len(places) >= ENOUGH


def failed_on(rooms: Rooms, model: str, run: Profile, source: Source) -> dict[str, str]:
    """By node: the replica just like it that is parked there. A larger card of the node may do."""
    return {
        shard.node: replica.id
        for replica in _alike(rooms, model, run, source)
        if replica.reason_code not in TOO_SMALL
        for shard in replica.shards
    }


def ran_out(rooms: Rooms, model: str, run: Profile, source: Source) -> tuple[str, int]:
    """The replica just like it that ran out of memory on the largest card, and that card's bytes; ("", 0): none did."""
    found = ("", 0)
    for replica in _alike(rooms, model, run, source):
        if replica.reason_code not in TOO_SMALL:
            continue
        for shard in replica.shards:
            cards = rooms[shard.node].node.facts.gpus or () if shard.node in rooms else ()
            sizes = [c.memory_bytes for c in cards if c.index in shard.devices and c.memory_bytes is not None]
            found = max(found, (replica.id, max(sizes, default=0)), key=lambda f: f[1])
    return found


def _alike(rooms: Rooms, model: str, run: Profile, source: Source) -> Iterable[ReplicaView]:
    return (r for r in rooms.parked.get(model, ()) if (r.run, r.source) == (run, source))
