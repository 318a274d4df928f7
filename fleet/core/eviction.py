"""May another model's replica be stopped so that one that is asked for gets its card? Pure.

Only an idle replica of another model that loads on demand, on one node, loaded for long enough, whose going alone makes
room; one at a time. What is kept loaded (`min` 1 and more) is a promise, and stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from agent.wire.reason import Reason
from fleet.core import placement, room, swap
from fleet.core.plan import Place
from fleet.core.replica import State
from fleet.core.room import Rooms
from fleet.core.scale import Count
from fleet.core.swap import EVICTED, LEAVES_S, Turn
from fleet.core.world import Demand, ReplicaView, ShardView, WantedModel, World

WAITS, GETS, FREED = "waits_for_card", "gets_card", "card_is_freed"
"""Codes of what a model is told that waits; a card that is being freed has been promised already."""
_HOLDS = frozenset({State.STARTING, State.LOADING, State.READY, State.BACKOFF})
_LEAVES = frozenset({State.DRAINING, State.STOPPING})
_MOST_KEPT = 64
"""Replicas that are looked at for what is told only: in a large cluster there is rarely one whose going would help."""


@dataclass(frozen=True, slots=True)
class Held:
    """It waits for a card that the model `by` holds; `free_at` (Unix seconds) where that is known. `evict`: the replica
    that goes for it now, and why."""

    by: str
    reason: Reason
    free_at: float | None = None
    evict: tuple[ReplicaView, Reason] | None = None


@dataclass(slots=True)
class Turns:
    """What is promised to whom, while a pass goes along the line of those who wait."""

    world: World
    counts: Mapping[str, Count]
    now: float
    promised: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    """Replica → the last model in line for its card, and when that gets it."""
    evicting: bool = False
    new: list[ReplicaView] = field(default_factory=list)
    """What this pass has placed."""

    def __post_init__(self) -> None:
        lost = {n.id for n in self.world.nodes if n.lost}  # what is to end there frees no card meanwhile
        self.evicting = any(
            r.state in _LEAVES and r.reason_code == EVICTED and not any(s.node in lost for s in r.shards)
            for r in self.world.replicas
        )

    def placed(self, step: Place) -> None:
        """What has just got a card holds it from now on, for those after it in the line."""
        shards = tuple(
            ShardView(n, s.node, s.port, s.devices, s.cpu_cores, s.memory_bytes) for n, s in enumerate(step.seats)
        )
        name = step.replica or f"new {step.model}"
        self.new.append(ReplicaView(name, step.model, State.STARTING, self.now, run=step.run, shards=shards))

    def look(self, wanted: WantedModel, rooms: Rooms) -> Held | None:
        """For a model that is wanted and fits nowhere; None: no on-demand replica's going would make room for it."""
        name = wanted.name
        pool = [r for r in self._replicas() if self._may(r, wanted) and _makes_room(wanted, rooms, r, self.world)]
        free = [r for r in pool if r.id not in self.promised]
        if not pool:
            return None
        if not free:
            return self._behind(name, pool[0])
        leaving = next((r for r in free if self._leaves(r)), None)
        if leaving is not None:
            soon = (leaving.since if leaving.state in _LEAVES else self.now) + LEAVES_S
            self.promised[leaving.id] = name, soon
            return Held(leaving.model, _waits(leaving.model, "it is being stopped", FREED), soon)
        since = swap.place(self._demand(name))
        turns = {r.id: self._turn(r, since) for r in free}
        holder = min(free, key=lambda r: (turns[r.id].order, self._demand(r.model).last_asked or 0.0, r.id))
        turn = turns[holder.id]
        due = turn.ends_at is not None and turn.ends_at <= self.now
        if due and not self.evicting:
            self.evicting = True
            self.promised[holder.id] = name, self.now + LEAVES_S
            return self._evict(name, holder)
        known = turn.ends_at is not None and turn.exact
        free_at = max(turn.ends_at or 0.0, self.now) + LEAVES_S if known else None
        self.promised[holder.id] = name, free_at
        return Held(holder.model, _waits(holder.model, "another is being stopped first" if due else turn.why), free_at)

    def _may(self, replica: ReplicaView, wanted: WantedModel) -> bool:
        if replica.state in _LEAVES:
            return bool(replica.shards)
        count = self.counts.get(replica.model)
        on_demand = count is not None and count.on_demand and replica.model != wanted.name
        return on_demand and replica.state in _HOLDS and len(replica.shards) == 1

    def _leaves(self, replica: ReplicaView) -> bool:
        """It goes already, or in this pass: nobody has asked for it in a long time."""
        return replica.state in _LEAVES or not self.counts[replica.model].replicas

    def _demand(self, model: str) -> Demand:
        return self.world.demand.get(model, Demand())

    def _turn(self, replica: ReplicaView, since: float) -> Turn:
        used, world = self._demand(replica.model), self.world
        start_s = world.starts.get(replica.model)
        return swap.turn(replica, used, since, world.settings, self.now, start_s=start_s, heard=world.heard)

    def _evict(self, name: str, replica: ReplicaView) -> Held:
        used, most_s = self._demand(replica.model), self.world.settings.swap_max_wait_s
        if used.in_flight or used.waiting:
            why = f"its turn is over, for {name} has waited for {most_s:.0f} s"
        elif used.last_asked is None:
            why = f"nobody asks for it, and somebody asks for {name}"
        else:
            why = f"nobody asked for it in {self.now - used.last_asked:.0f} s, and somebody asks for {name}"
        gone = Reason(EVICTED, f"it gives up its card to {name}: {why}", f"llmgw why {name}")
        said = why.replace("its turn", f"the turn of {replica.model}").replace("for it", f"for {replica.model}")
        told = Reason(GETS, f"it gets the card of {replica.model} ({replica.id}): {said}", f"llmgw why {replica.id}")
        return Held(replica.model, told, self.now + LEAVES_S, (replica, gone))

    def _behind(self, name: str, holder: ReplicaView) -> Held:
        """Others are before it in the line for every card that it could have."""
        first, free_at = self.promised[holder.id]
        start_s = self.world.starts.get(first)
        if free_at is not None and start_s is not None:
            free_at += start_s + swap.residence_s(self.world.settings, start_s) + LEAVES_S
        else:
            free_at = None
        self.promised[holder.id] = name, free_at
        return Held(holder.model, _waits(holder.model, f"{first} is before it"), free_at)

    def kept(self, wanted: WantedModel, rooms: Rooms) -> str | None:
        """The model that is kept loaded and whose card would be enough: nobody but a person makes it go."""
        for replica in islice((r for r in self._replicas() if self._is_kept(r, wanted)), _MOST_KEPT):
            if _makes_room(wanted, rooms, replica, self.world):
                return replica.model
        return None

    def _is_kept(self, replica: ReplicaView, wanted: WantedModel) -> bool:
        count = self.counts.get(replica.model)
        on_demand = count is None or count.on_demand
        return replica.state in _HOLDS and bool(replica.shards) and not on_demand and replica.model != wanted.name

    def _replicas(self) -> Iterator[ReplicaView]:
        yield from self.world.replicas
        yield from self.new


def _makes_room(wanted: WantedModel, rooms: Rooms, replica: ReplicaView, world: World) -> bool:
    relieved = room.relieved(rooms, replica)
    if all(p.run.nodes == 1 for p in wanted.profiles):  # only where it goes is anything different
        relieved = Rooms((s.node, relieved[s.node]) for s in replica.shards if s.node in relieved)
    return placement.fits(wanted, relieved, world.settings)


def _waits(holder: str, why: str, code: str = WAITS) -> Reason:
    return Reason(code, f"it waits for a card that {holder} holds: {why}", f"llmgw why {holder}")
