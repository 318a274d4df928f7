"""Whether an engine that no row knows is just what its model wants: then rows are made for it. Pure."""

from __future__ import annotations

from agent.wire.shard import ShardSpec, ShardState
from fleet.core.plan import Adopt
from fleet.core.world import ShardView, StrayView, WantedModel

_ALIVE = frozenset({ShardState.STARTING, ShardState.LOADING, ShardState.READY})


def adopt(stray: StrayView, wanted: WantedModel) -> Adopt | None:
    """The step that takes `stray` over: only a live engine that would be started the same way again today."""
    if stray.state not in _ALIVE or stray.port is None or not stray.shard_id.endswith(".0"):
        return None
    for profile in wanted.profiles:
        spec = ShardSpec(
            shard_id=stray.shard_id,
            replica_id=stray.replica_id,
            model=wanted.name,
            profile=profile.run,
            source=wanted.source(profile),
            port=stray.port,
            key=stray.key,
            incarnation=stray.incarnation,
        )
        if spec.fingerprint == stray.fingerprint:
            return Adopt(
                node=stray.node,
                shard_id=stray.shard_id,
                replica=stray.replica_id,
                model=wanted.name,
                profile=profile.run.name,
                run=profile.run,
                source=spec.source,
                port=stray.port,
                incarnation=stray.incarnation,
                state=stray.state,
                cpu_cores=profile.run.cpu_cores or 0,
                memory_bytes=profile.run.memory_bytes or 0,
            )
    return None


def shard(step: Adopt) -> ShardView:
    """What the adopted engine takes of its node."""
    return ShardView(0, step.node, step.port, (), step.cpu_cores, step.memory_bytes, observed=step.state)
