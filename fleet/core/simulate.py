"""A plan carried out on values: what `fleet.apply` does on rows. For pretended weeks, and for tests. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from fleet.core import plan as steps
from fleet.core.adoption import shards as adopted_shards
from fleet.core.replica import LEGAL, State
from fleet.core.world import ReplicaView, ShardView, World


def apply(world: World, plan: steps.Plan, now: float, names: Iterator[str] | None = None) -> World:
    """The world after the plan. `names`: of new replicas."""
    simulated = _Simulated(world, now, names or (f"new-{len(world.replicas)}-{i}-{int(now)}" for i in count()))
    for step in plan.steps:
        simulated.take(step)
    return simulated.world()


class _Simulated:
    """A world to which things happen."""

    def __init__(self, world: World, now: float, names: Iterator[str]) -> None:
        self.before, self.now, self.names = world, now, names
        self.replicas = {r.id: r for r in world.replicas}
        self.nodes = {n.id: n for n in world.nodes}
        self.strays = list(world.strays)

    def world(self) -> World:
        return replace(
            self.before,
            nodes=tuple(self.nodes.values()),
            replicas=tuple(self.replicas.values()),
            strays=tuple(self.strays),
        )

    def take(self, step: steps.Step) -> None:
        match step:
            case steps.Place():
                self._place(step)
            case steps.Want():
                self._want(step)
            case steps.Hold():
                self._change(step.replica, **_pending(step))
            case steps.Retry():
                self._retry(step)
            case steps.Lose():
                self._move(step.replica, State.LOST)
            case steps.Drain():
                self._move(step.replica, State.DRAINING, reason=step.reason.sentence, reason_code=step.reason.code)
            case steps.Stop():
                self._move(step.replica, State.STOPPING, reason=step.reason.sentence)
            case steps.Forget():
                del self.replicas[step.replica]
            case steps.Flag():
                self._change(step.replica, stale=step.stale)
            case steps.Adopt():
                self._adopt(step)
            case steps.Settle():
                self._settle(step.node)

    def _change(self, replica: str, **changes: Any) -> None:
        self.replicas[replica] = replace(self.replicas[replica], **changes)

    def _move(self, replica: str, state: State, **changes: Any) -> None:
        before = self.replicas[replica].state
        assert state in LEGAL[before], f"{replica} from {before} to {state}"
        self._change(replica, state=state, since=self.now, **changes)

    def _place(self, step: steps.Place) -> None:
        name = step.replica or next(self.names)
        self.replicas.setdefault(name, ReplicaView(name, step.model, State.PENDING, self.now, created=self.now))
        shards = tuple(
            ShardView(rank, s.node, s.port, s.devices, s.cpu_cores, s.memory_bytes, address=s.address, link=s.link)
            for rank, s in enumerate(step.seats)
        )
        self._move(
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

    def _want(self, step: steps.Want) -> None:
        name = next(self.names)
        self.replicas[name] = ReplicaView(name, step.model, State.PENDING, self.now, created=self.now, **_pending(step))

    def _retry(self, step: steps.Retry) -> None:
        before = self.replicas[step.replica]
        self._move(
            step.replica,
            State.STARTING,
            incarnation=before.incarnation + 1,
            shards=tuple(replace(s, port=p) for s, p in zip(before.shards, step.ports, strict=True)),
            meeting_port=step.meeting_port,
        )

    def _adopt(self, step: steps.Adopt) -> None:
        self.strays = [s for s in self.strays if s.shard_id not in step.shard_ids]
        self.replicas[step.replica] = ReplicaView(
            step.replica,
            step.model,
            State.READY if step.state == "ready" else State.STARTING,
            self.now,
            profile=step.profile,
            run=step.run,
            source=step.source,
            shards=adopted_shards(step),
            incarnation=step.incarnation,
            fabric=step.fabric,
            meeting_port=step.meeting_port,
            created=self.now,
        )

    def _settle(self, node: str) -> None:
        self.nodes[node] = replace(self.nodes[node], settled=True)
        self.strays = [replace(s, dismissed=True) if s.node == node else s for s in self.strays]


def _pending(step: steps.Want | steps.Hold) -> dict[str, Any]:
    """What a replica says that waits."""
    return {
        "reason": step.reason.sentence,
        "reason_code": step.reason.code,
        "held_by": step.held_by,
        "free_at": step.free_at,
    }
