"""Replacing what serves: whether successors fit beside the old, in their place, or nowhere, and which of the old goes
for them. Pure.

New before old and one at a time is the rule; in place where nothing else fits, or where somebody asked for it; and
what would fit nowhere costs nothing that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.wire.reason import Reason
from fleet.core import placement, room
from fleet.core.draft import LEAVING, Draft
from fleet.core.replica import State
from fleet.core.staleness import due
from fleet.core.world import ReplicaView, WantedModel, World


@dataclass(frozen=True, slots=True)
class Beside:
    """A new one fits while all old ones run."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """A new one fits once `replica` is gone; `why` nothing fits beside it."""

    replica: str
    why: Reason


@dataclass(frozen=True, slots=True)
class Nowhere:
    why: Reason


Way = Beside | InPlace | Nowhere


def in_place(wanted: WantedModel, replicas: Iterable[ReplicaView]) -> bool:
    """Whether those that are due go before their successors come. `replicas`: all of the model, also those that are
    on their way out, for what they hold is not free yet."""
    return wanted.in_place and any(due(wanted, r) for r in replicas)


def way(world: World, wanted: WantedModel, replicas: Iterable[ReplicaView]) -> Way:
    """How a successor of one of `replicas` (those that run) would come in now."""
    rooms = room.of(world)
    match placement.place(wanted, rooms, world.settings):
        case placement.Unplaced(reason=why):
            pass
        case _:
            return Beside()
    rooms = room.of(world)
    for replica in replicas:
        if placement.fits(wanted, room.relieved(rooms, replica), world.settings):
            return InPlace(replica.id, why)
    return Nowhere(why)


def retire(draft: Draft, old: list[ReplicaView], fresh: Sequence[ReplicaView], count: int) -> None:
    """Ends serving replicas that differ, as far as enough others serve."""
    serving = sum(r.state is State.READY for r in fresh)
    spare = serving + len(old) - count
    for replica in sorted(old, key=draft.worth)[: max(spare, 0)]:
        _end(draft, replica, old)


def make_way(draft: Draft, wanted: WantedModel, old: list[ReplicaView]) -> None:
    """Nothing new fits beside the old: what is on a node that is drained goes anyway; else one is replaced in place,
    if the new one would fit there."""
    for replica in [r for r in old if draft.staleness.drained(r)]:
        _end(draft, replica, old)
    mine = (r for r in draft.world.replicas if r.model == wanted.name)
    if any((r.state in LEAVING and not draft.out_of_reach(r)) or r.id in draft.ended for r in mine):
        return  # what that one holds is free in a moment
    for replica in sorted(old, key=draft.worth):
        if placement.fits(wanted, room.relieved(draft.rooms, replica), draft.world.settings):
            _end(draft, replica, old)
            return


def clears(draft: Draft, old: list[ReplicaView], fresh: Sequence[ReplicaView], count: int) -> bool:
    """Where replicas are replaced in place: ends one of the old, once all that was begun serves. False: none goes."""
    if not old or len(fresh) + len(old) < count or not _serve(fresh):
        return False
    _end(draft, min(old, key=draft.worth), old)
    return True


def _serve(fresh: Iterable[ReplicaView]) -> bool:
    """Whether all that was begun serves: one that fails ends the replacing."""
    return all(r.state is State.READY for r in fresh)


def _end(draft: Draft, replica: ReplicaView, old: list[ReplicaView]) -> None:
    draft.end(replica, draft.staleness.why(replica))
    old.remove(replica)
