"""The memory of a shard's cards: waited for before it starts, and looked at when it ended for want of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from agent.core import holders
from agent.node.context import Context
from agent.wire.shard import CARD_HELD, ShardSpec

_FREED_S, _POLL_S = 30.0, 0.5
"""A driver needs seconds to take a card from a process that was killed."""


async def free(ctx: Context, spec: ShardSpec, waiting: Callable[[str | None], None]) -> str | None:
    """Waits until nobody holds memory of its cards any more; who does, if that takes too long. A driver gives back what
    a killed engine had only after a while, and an engine that starts before fails its own check without a hint."""
    if not spec.devices:
        return None
    deadline = ctx.clock.monotonic() + _FREED_S
    waited = False
    while True:
        found = await asyncio.to_thread(ctx.host.device_use, spec.devices)
        held = holders.occupied(found or ())
        if not held:
            break
        if ctx.clock.monotonic() >= deadline:
            return f"its cards were not free within {_FREED_S:g} s: {holders.told(held)}"
        waiting(f"it waits for its cards to be free: {holders.told(held)}")
        waited = True
        await asyncio.sleep(_POLL_S)
    if waited:
        waiting(None)
    return None


async def wanting(ctx: Context, spec: ShardSpec, cause: str) -> tuple[str | None, str]:
    """Of a death for want of a card's memory, after its log: whether somebody else had it, and who. The cause is left
    open where that cannot be told: then the same start may succeed another time."""
    found = await asyncio.to_thread(ctx.host.device_use, spec.devices)
    if not found:
        return None, ""
    others = holders.occupied(replace(one, free_bytes=None) for one in found)
    if others:
        return CARD_HELD, holders.told(others)
    open_ = cause == CARD_HELD or holders.occupied(found)  # not given back yet, or had by one that is not shown
    return (None if open_ else cause), ""
