"""Taking turns on a card: which model is next, and when the one that holds it gives it up. Pure.

Requests are grouped by their model, since the gateways keep them in line for it: a turn serves all that wait. First
come, first served among models. A model keeps its card for a while after it was loaded (`residence_s`); then it goes
when it was not asked for `swap_idle_s`, or, however busy, when another has waited for `swap_max_wait_s`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleet.core.replica import State
from fleet.core.world import Demand, ReplicaView, World
from llmgw.cluster.core.sections import FleetSettings

EVICTED = "evicted"
"""Code of the reason for which one replica goes so that another gets its card."""
LEAVES_S = 3.0
"""From the decision to a free card, about: gateways send nothing more, and the engine ends."""
_LEAST_S, _UNKNOWN_S = 5.0, 30.0
"""Of a residence that nobody set: at least, and before the first start was measured."""
_SOON_S = 30.0
"""One in use may become idle any moment: when its turn is over at the latest is told only when that is near."""
_MOST_S = 3600.0
"""Longer than an answer may take (`gateway.generation_timeout_s`)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a replica gives up its card at the latest: Unix seconds, None where nobody knows. `why` it is not sooner."""

    ends_at: float | None
    why: str
    exact: bool = True
    """It does not end sooner, unless somebody asks for it meanwhile."""

    @property
    def order(self) -> float:
        return math.inf if self.ends_at is None else self.ends_at


def place(demand: Demand) -> float:
    """By since when somebody waits; who only asked before comes after all who wait."""
    return demand.waiting_since if demand.waiting_since is not None else math.inf


def residence_s(settings: FleetSettings, start_s: float | None) -> float:
    """How long a model that was loaded keeps its card, whoever waits. Where nobody says, as long as its starts take: so
    a card does not spend more time on loading than on answering, and a small model is not held for long."""
    if settings.swap_min_residence_s is not None:
        return settings.swap_min_residence_s
    if start_s is None:
        return min(_UNKNOWN_S, settings.swap_max_wait_s)
    return min(max(start_s, _LEAST_S), settings.swap_max_wait_s)


def turn(
    holder: ReplicaView,
    used: Demand,
    next_since: float,
    settings: FleetSettings,
    now: float,
    *,
    start_s: float | None = None,
    heard: bool = True,
) -> Turn:
    """Of the replica that holds the card, while somebody waits for it since `next_since`."""
    if not heard:
        return Turn(None, "no gateway has been heard, and nobody knows whether it is in use")
    rests_s = residence_s(settings, start_s)
    if holder.state in (State.STARTING, State.LOADING):
        if start_s is None:
            return Turn(None, "it has just been started")
        return Turn(max(now, holder.since + start_s) + rests_s, "it has just been started")
    safe_until = holder.since + rests_s if holder.state is State.READY else holder.since
    turn_ends = next_since + settings.swap_max_wait_s
    busy = bool(used.in_flight or used.waiting)
    if busy:
        ends, why = turn_ends, "it is in use"
    else:
        quiet_at = (used.last_asked if used.last_asked is not None else 0.0) + settings.swap_idle_s
        ends, why = min(quiet_at, turn_ends), "it was asked for a moment ago"
    if ends <= now < safe_until:
        why = "it was loaded a moment ago"
    ends = max(ends, safe_until)
    return Turn(ends, why, exact=not busy or ends - now <= _SOON_S)


def drained(world: World, replica: ReplicaView, now: float, *, served_on: bool) -> bool:
    """Whether one that drains may be ended: every gateway knows it, and has nothing in flight there; or its time is
    over. What it has begun it finishes where its model is `served_on`, since others take its place, and where it is
    evicted, since the other model waits for that."""
    if replica.id in world.quiet:
        return True
    most_s = world.settings.drain_s
    if replica.reason_code == EVICTED and world.demand.get(replica.model, Demand()).in_flight:
        most_s = _MOST_S
    elif served_on and replica.id in world.busy:
        most_s = max(most_s, world.settings.drain_busy_s)
    return now - replica.since >= most_s
