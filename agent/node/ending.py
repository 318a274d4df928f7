"""Ends everything that belongs to a run of a shard: asked first, then killed, to the last process."""

from __future__ import annotations

import asyncio
import signal

from agent.node.clock import Clock
from agent.node.host import Host, Identity

_LOOK_S = 0.05
_KILL_FOR_S = 10.0


async def end(
    host: Host, clock: Clock, home_id: str, shard_id: str, launch: str, leaders: tuple[Identity, ...], grace_s: float
) -> bool:
    """SIGTERM, `grace_s` seconds, SIGKILL. False when something is left that does not die (it waits for a disk or
    a driver). What called setsid is found by the marker in its environment, what dropped that by its session."""
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_FOR_S)):
        if number is signal.SIGTERM and grace_s <= 0:
            continue
        until = clock.monotonic() + patience_s
        told: set[Identity] = set()
        while True:
            left = remains(host, home_id, shard_id, launch, leaders)
            if not left:
                return True
            for process in left:
                if process not in told or number is signal.SIGKILL:
                    host.signal(process, number)
                    told.add(process)
            if clock.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK_S if len(told) < 64 else 4 * _LOOK_S)
    return False


def remains(
    host: Host, home_id: str, shard_id: str, launch: str, leaders: tuple[Identity, ...]
) -> tuple[Identity, ...]:
    """The living processes of one run."""
    marked = {m.identity for m in host.marked(home_id) if (m.mark.shard_id, m.mark.launch) == (shard_id, launch)}
    return tuple(sorted(marked | set(host.members({shard_id: leaders})[shard_id]), key=lambda i: i.pid))
