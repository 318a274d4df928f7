"""A plan carried out on values: what `fleet.apply` does on rows. For pretended weeks, and for tests. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from fleet.core import plan as steps
from fleet.core.adoption import shards as adopted_shards
from fleet.core.replica import LEGAL, State
from fleet.core.world import ReplicaView, ShardView, World


def apply(world: World, plan: steps.Plan, now: float, names: Iterator[str] | None = None) -> World:
    replicas = {r.id: r for r in world.replicas}
    nodes = {n.id: n for n in world.nodes}
    strays = list(world.strays)
    names = names or (f"new-{len(world.replicas)}-{i}-{int(now)}" for i in count())

    def move(replica: str, state: State, **changes: object) -> None:
        before = replicas[replica]
        assert state in LEGAL[before.state], f"{replica} from {before.state} to {state}"
        replicas[replica] = replace(before, state=state, since=now, **changes)  # type: ignore[arg-type]

    for step in plan.steps:
        match step:
            case steps.Place():
                name = step.replica or next(names)
                before = replicas.get(name) or ReplicaView(name, step.model, State.PENDING, now, created=now)
                shards = tuple(
                    ShardView(
                        rank, s.node, s.port, s.devices, s.cpu_cores, s.memory_bytes, address=s.address, link=s.link
                    )
                    for rank, s in enumerate(step.seats)
                )
                replicas[name] = before
                move(
                    name,
                    State.STARTING,
                    profile=step.profile,
                    run=step.run,
                    source=step.source,
                    shards=shards,
                    fabric=step.fabric,
                    meeting_port=step.meeting_port,
                    reason="",
                    reason_code="",
                )
            case steps.Want():
                name = next(names)
                reason = step.reason
                replicas[name] = ReplicaView(
                    name,
                    step.model,
                    State.PENDING,
                    now,
                    reason=reason.sentence,
                    reason_code=reason.code,
                    held_by=step.held_by,
                    free_at=step.free_at,
                    created=now,
                )
            case steps.Hold():
                held = replicas[step.replica]
                replicas[step.replica] = replace(
                    held,
                    reason=step.reason.sentence,
                    reason_code=step.reason.code,
                    held_by=step.held_by,
                    free_at=step.free_at,
                )
            case steps.Retry():
                before = replicas[step.replica]
                moved = tuple(replace(s, port=p) for s, p in zip(before.shards, step.ports, strict=True))
                move(
                    step.replica,
                    State.STARTING,
                    incarnation=before.incarnation + 1,
                    shards=moved,
                    meeting_port=step.meeting_port,
                )
            case steps.Lose():
                move(step.replica, State.LOST)
            case steps.Drain():
                move(step.replica, State.DRAINING, reason=step.reason.sentence, reason_code=step.reason.code)
            case steps.Stop():
                move(step.replica, State.STOPPING, reason=step.reason.sentence)
            case steps.Forget():
                del replicas[step.replica]
            case steps.Flag():
                replicas[step.replica] = replace(replicas[step.replica], stale=step.stale)
            case steps.Adopt():
                strays = [s for s in strays if s.shard_id not in step.shard_ids]
                state = State.READY if step.state == "ready" else State.STARTING
                replicas[step.replica] = ReplicaView(
                    step.replica,
                    step.model,
                    state,
                    now,
                    profile=step.profile,
                    run=step.run,
                    source=step.source,
                    shards=adopted_shards(step),
                    incarnation=step.incarnation,
                    fabric=step.fabric,
                    meeting_port=step.meeting_port,
                    created=now,
                )
            case steps.Settle():
                nodes[step.node] = replace(nodes[step.node], settled=True)
                strays = [replace(s, dismissed=True) if s.node == step.node else s for s in strays]
    return replace(world, nodes=tuple(nodes.values()), replicas=tuple(replicas.values()), strays=tuple(strays))
