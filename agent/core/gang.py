"""Ranks of one replica on several nodes: where a worker meets its leader, and how long ranks wait for one another.
Pure.

The leader is rank 0. It listens at the meeting address as soon as it starts, and serves once every worker has joined;
a worker that began first would find nobody there, and an engine that finds nobody ends.
"""

from __future__ import annotations

from agent.engine import Command, Rendezvous
from agent.wire.shard import ShardSpec

_SLOWEST_BYTES_S = 20e6
"""A download slower than this is not waited for by the other ranks: it goes on, and the next try finds it whole."""
_UNKNOWN_FETCH_S = 1800.0
_HERE = ("path:", "starter:")


def patience_s(spec: ShardSpec) -> float:
    """How long one rank may be without the others: each loads its own weights, and one may have them here already
    while another still fetches them."""
    timeout_s = spec.profile.startup_timeout_s
    if spec.world_size == 1 or spec.source.url.startswith(_HERE):
        return timeout_s
    size = spec.source.size_bytes
    return timeout_s + (size / _SLOWEST_BYTES_S if size is not None else _UNKNOWN_FETCH_S)


def meeting(spec: ShardSpec, commands: tuple[Command, ...]) -> Rendezvous | None:
    """What a worker waits for before its first process; None where an engine's own commands say it, or need not."""
    if spec.rank == 0 or spec.gang is None or any(c.waits_for is not None for c in commands):
        return None
    return Rendezvous(spec.gang.addresses[0], spec.gang.port, patience_s(spec))
