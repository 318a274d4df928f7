"""Replacing what serves: which replicas are due, and whether their successors fit beside them, in their place, or
nowhere. Pure.

New before old and one at a time is the rule; in place where nothing else fits, or where somebody asked for it; and
what would fit nowhere costs nothing that runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.wire.reason import Reason
from fleet.core import placement, room
from fleet.core.replica import State
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


def due(wanted: WantedModel, replica: ReplicaView) -> bool:
    """Whether it runs from before somebody asked for fresh ones."""
    return replica.run is not None and wanted.restarted_at is not None and replica.created < wanted.restarted_at


def in_place(wanted: WantedModel, replicas: Iterable[ReplicaView]) -> bool:
    """Whether those that are due go before their successors come. `replicas`: all of the model, also those that are
    on their way out, for what they hold is not free yet."""
    return wanted.in_place and any(due(wanted, r) for r in replicas)


def serve(fresh: Iterable[ReplicaView]) -> bool:
    """Whether all that was begun serves: one that fails ends the replacing."""
    return all(r.state is State.READY for r in fresh)


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
