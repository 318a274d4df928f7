"""How many requests a model's replicas have room for, as one edge knows it. Pure.

The unit is a place: what a profile's `parallel` says a replica works on at once. An engine that says otherwise is
believed: one that lets requests wait while places are free has as many as it runs, one whose KV cache is nearly full
as many as fit into it by the size of those that run. Both become places, and not a state of their own, so that a
figure that is a second old never stops what has already ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from gateway.core.breaker import CLOSED
from gateway.core.load import FULL, Load

SHARES = (1.0, 0.9, 0.7)
"""Below which saturation each band is let in."""
LEAST = (1.0, 0.5, 0.0)
"""What a model that is past its promise leaves of it: whoever comes first to that must not stop all others."""
_EXACT = 1e-9


class Room(NamedTuple):
    """`room`: requests that may be at the replicas; 0 while all of them rest. `there`: those that are."""

    room: int
    there: int

    def saturation(self) -> float | None:
        return self.there / self.room if self.room else None


def room_of(loads: Sequence[Load], held: int, overcommit: float, now: float) -> Room | None:
    """With `held` requests of ours let in; None where no replica takes any: then the router says why. What is at one
    replica beyond its own room leaves the others free."""
    room = there = 0
    any_left = False
    for load in loads:
        held -= load.in_flight
        if load.draining:
            continue
        any_left = True
        if load.resting_until > now:
            continue
        own = _room(load, overcommit)
        room += own
        there += min(own, load.in_flight + load.foreign)
    return Room(room, there + max(0, held)) if any_left else None


def _room(load: Load, overcommit: float) -> int:
    parallel, said = load.parallel, load.gauges
    room = ceil(parallel * overcommit - _EXACT)
    if load.breaker is not CLOSED:
        return 1  # a probe's
    if said.running is None:
        return room
    places = parallel
    if said.waiting is not None and said.waiting > room - parallel:
        places = min(places, said.running)
    if said.kv_usage is not None and said.kv_usage >= FULL and said.running:
        places = min(places, int(said.running / said.kv_usage))
    return room if places == parallel else max(1, places)


def shares(excess: float, given: tuple[float, float, float] = SHARES) -> tuple[float, float, float]:
    """Of each band while the model is past its promise by `excess` (0.5: half as slow again). Interactive requests are
    not held up by it: waiting here would make them no faster."""
    if excess <= 0:
        return given
    normal = max(min(given[1], LEAST[1]), given[1] - excess)
    return given[0], normal, min(normal, max(LEAST[2], given[2] - excess))


def cap(room: int, share: float) -> int:
    """Below how many requests that are there a band is let in: below that share of saturation. One always may."""
    return max(1, ceil(room * share - _EXACT))


def sure(loads: Sequence[Load], overcommit: float, now: float) -> int:
    """How many of ours there surely is room for, at a look."""
    free = 0
    for load in loads:
        if not load.draining and load.resting_until <= now:
            free += max(0, _room(load, overcommit) - load.foreign)
    return free


def partition(room: Room, held: int, own: float, others: float) -> Room:
    """The part of the room that is this edge's while requests wait at others too: by the weights of the projects that
    wait, `own` here and `others` elsewhere. Nobody then counts what the rest holds, so that none can starve another."""
    if others <= 0 or not room.room:
        return room
    return Room(max(1, round(room.room * own / (own + others))), held)
