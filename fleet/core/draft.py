"""A plan in the making: what a pass goes by, and the steps that it has decided on so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from agent.wire.reason import Reason
from fleet.core import room, scale
from fleet.core.eviction import FREED, GETS, Held
from fleet.core.plan import STOPS, Drain, Forget, Hold, Plan, Step, Stop, Want
from fleet.core.replica import State
from fleet.core.room import Rooms
from fleet.core.staleness import Staleness
from fleet.core.world import ReplicaView, WantedModel, World

LEAVING = frozenset({State.DRAINING, State.STOPPING})
_WORTH = (State.PARKED, State.PENDING, State.BACKOFF, State.STARTING, State.LOADING, State.READY)
_NEAR_S = 2.0
"""Two expected times that are no news to one another."""


class Draft:
    """Steps are added while `rooms` keeps the ledger of what they take."""

    def __init__(self, world: World, wanted: tuple[WantedModel, ...], now: float) -> None:
        self.world, self.now = world, now
        self.nodes = {n.id: n for n in world.nodes}
        self.models = {w.name: w for w in wanted}
        self.counts = scale.counts(world, wanted, now)
        self.staleness = Staleness(world, self.models)
        self.lost = {n.id for n in world.nodes if n.lost}
        self.steps: list[Step] = []
        self.ended: set[str] = set()
        self.awaited: Mapping[str, list[Reason]] = {}
        """By model: of each replica that a rank which may yet be reported would make whole."""

    @cached_property
    def rooms(self) -> Rooms:
        """Where nothing is to be done nobody asks what is left where."""
        return room.of(self.world)

    def plan(self) -> Plan:
        steps = self.steps if self.world.synced else [s for s in self.steps if not isinstance(s, STOPS)]
        return Plan(tuple(steps))

    def end(self, replica: ReplicaView, reason: Reason) -> None:
        """It drains first where it serves."""
        if not self.world.synced or replica.id in self.ended:
            return
        self.ended.add(replica.id)
        if not replica.shards:
            self.steps.append(Forget(replica.id))
        elif replica.state is State.READY and self.world.settings.drain_s > 0:
            self.steps.append(Drain(replica.id, reason))
        else:
            self.steps.append(Stop(replica.id, reason))

    def defer(
        self, model: str, replica: ReplicaView | None, reason: Reason, ordinal: int, held: Held | None = None
    ) -> None:
        """It stays pending, or becomes so, and says why."""
        by, free_at = (held.by, held.free_at) if held is not None else ("", None)
        if replica is None:
            self.steps.append(Want(model, reason, ordinal, by, free_at))
            return
        promised = replica.reason_code == GETS and reason.code == FREED and replica.held_by == by
        same = (replica.reason_code, replica.reason, replica.held_by) == (reason.code, reason.sentence, by)
        if not promised and not (same and _near(replica.free_at, free_at)):
            self.steps.append(Hold(replica.id, reason, by, free_at, kept=reason.code == GETS))

    def worth(self, replica: ReplicaView) -> tuple[bool, int, float, str]:
        """The least worth first: not serving, on a crowded or cordoned node, young."""
        cordoned = any((n := self.nodes.get(s.node)) is not None and n.cordoned for s in replica.shards)
        serves = not cordoned and replica.state is State.READY
        return (serves, _WORTH.index(replica.state), -replica.created, replica.id)

    def out_of_reach(self, replica: ReplicaView) -> bool:
        """It is to end, and ends when its node is back: nobody waits for what it holds."""
        return replica.state in LEAVING and any(s.node in self.lost for s in replica.shards)


def _near(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else abs(one - other) <= _NEAR_S
