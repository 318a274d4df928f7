"""How many cores an engine may use that runs on the CPU and whose profile names no number. Pure.

Each would take all of them, and wait for its other threads in a circle that takes cores from the others' threads.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.wire.shard import ShardSpec


def share(spec: ShardSpec, wanted: Iterable[ShardSpec], cores: int | None) -> int | None:
    """Of `spec`, beside the others that the node is asked to run: what those leave whose profiles name a number,
    divided among those that name none. None: it is not bounded, for it has cards, says itself how many, or is alone."""
    if not unnamed(spec) or cores is None:
        return None
    others = [s for s in wanted if s.shard_id != spec.shard_id and not s.devices]
    if not others:
        return None
    free = cores - sum(s.profile.cpu_cores or 0 for s in others)
    sharing = 1 + sum(unnamed(s) for s in others)
    return max(-(-free // sharing), 1)


def unnamed(spec: ShardSpec) -> bool:
    """It runs on the CPU, and its profile names no number of cores."""
    return not spec.devices and spec.profile.cpu_cores is None
