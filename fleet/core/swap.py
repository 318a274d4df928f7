"""Taking turns on a card: which model is next, and when the one that holds it gives it up. Pure.

Requests are grouped by their model, since the gateways keep them in line for it: a turn serves all that wait. First
come, first served among models. A model keeps its card for `swap_min_residence_s` after it was loaded; then it goes
when it was not asked for `swap_idle_s`, or, however busy, when another has waited for `swap_max_wait_s`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.core.replica import State
from fleet.core.world import Demand, ReplicaView, World
from llmgw.cluster.core.settings import FleetSettings

EVICTED, IDLE = "evicted", "not_asked"
"""Codes of the reasons for which an on-demand replica goes."""
LEAVES_S = 5.0
"""From the decision to a free card, about: gateways send nothing more, and the engine ends."""
_HEARD_S = 2.5
"""After which what the gateways say of requests in flight is newer than the word to send no more."""
_MOST_S = 3600.0
"""Longer than an answer may take (`gateway.generation_timeout_s`)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a replica gives up its card: Unix seconds, None where nobody knows. `why` it is not sooner, or goes."""

    ends_at: float | None
    why: str

    @property
    def order(self) -> float:
        return math.inf if self.ends_at is None else self.ends_at


def line(waiting: Iterable[tuple[str, Demand]]) -> list[str]:
    """Models in the order in which they are loaded: who has waited longest goes first."""
    return [name for name, _ in sorted(waiting, key=lambda w: (place(w[1]), w[0]))]


def place(demand: Demand) -> float:
    """By since when somebody waits; who only asked before comes after all who wait."""
    return demand.waiting_since if demand.waiting_since is not None else math.inf


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
    rests_s = settings.swap_min_residence_s
    if holder.state in (State.STARTING, State.LOADING):
        if start_s is None:
            return Turn(None, "it has just been started")
        return Turn(max(now, holder.since + start_s) + rests_s, "it has just been started")
    safe_until = holder.since + rests_s if holder.state is State.READY else holder.since
    turn_ends = next_since + settings.swap_max_wait_s
    if used.in_flight or used.waiting:
        ends, why = turn_ends, "it is in use"
    else:
        quiet_at = (used.last_asked if used.last_asked is not None else 0.0) + settings.swap_idle_s
        ends, why = min(quiet_at, turn_ends), "it was asked for a moment ago"
    if ends <= now < safe_until:
        why = "it was loaded a moment ago"
    return Turn(max(ends, safe_until), why)


def drained(world: World, replica: ReplicaView, now: float) -> bool:
    """Whether one that drains may be ended: its time is over, or it is known that nobody uses it. One that is evicted
    finishes what it has begun: the other model waits for that."""
    gone_s = now - replica.since
    if not world.heard or replica.reason_code not in (EVICTED, IDLE):
        return gone_s >= world.settings.drain_s
    if not world.demand.get(replica.model, Demand()).in_flight:
        return gone_s >= min(_HEARD_S, world.settings.drain_s)
    return gone_s >= (_MOST_S if replica.reason_code == EVICTED else world.settings.drain_s)
