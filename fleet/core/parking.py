"""What a parked replica says to whoever places the next one. Pure."""

from __future__ import annotations

from agent.wire.shard import Profile, Source
from fleet.core.room import Rooms

GPU_MEMORY = "gpu_memory"
"""Code of a start that ran out of memory on a card that nobody else had."""


def ran_out(rooms: Rooms, model: str, run: Profile, source: Source) -> tuple[str, int]:
    """The replica just like it that ran out of memory on the largest card, and that card's bytes; ("", 0): none did."""
    found = ("", 0)
    for replica in rooms.parked.get(model, ()):
        if replica.reason_code != GPU_MEMORY or (replica.run, replica.source) != (run, source):
            continue
        for shard in replica.shards:
            cards = rooms[shard.node].node.facts.gpus or () if shard.node in rooms else ()
            sizes = [c.memory_bytes for c in cards if c.index in shard.devices and c.memory_bytes is not None]
            found = max(found, (replica.id, max(sizes, default=0)), key=lambda f: f[1])
    return found
