"""How many replicas a model's load asks for: one more when requests wait at all of them, one less after a quiet spell.
Pure: what is remembered between two looks comes in and goes out.

Between busy and quiet lies a band in which nothing happens, each step begins its spell anew, and none is taken up while
a replica that was asked for is not there yet: so the number settles, and a replica that starts is never counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.wire.reason import Reason
from fleet.core.replica import State
from fleet.core.world import Demand, ReplicaView
from llmgw.cluster.core.sections import FleetSettings

FORGOTTEN_S = 30.0
"""What was remembered longer ago is nobody's memory: another planner was at work, or none."""
_BLINK_S = 5.0
"""A queue that is empty for a look between two bursts is no end of being busy."""
_COMING = frozenset({State.PENDING, State.STARTING, State.LOADING, State.BACKOFF})
"""A parked one comes only when somebody says so, and keeps no other from being asked for."""


@dataclass(frozen=True, slots=True)
class Load:
    """One look: replicas that serve and that are to come, the requests that all of them work on at once, and what the
    gateways tell."""

    ready: int
    coming: int
    places: int
    in_flight: int
    waiting: int

    @property
    def busy(self) -> bool:
        """Requests wait at every replica: the gateways send a request where there is a place."""
        return self.ready > 0 and (self.waiting > 0 or self.in_flight > self.places)

    def quiet(self, share: float, target: int) -> bool:
        """One replica less than `target` would be busy to `share` at most."""
        if self.waiting or not self.ready:
            return False
        left = min(target - 1, self.ready)
        return self.in_flight <= self.places * left / self.ready * share


@dataclass(frozen=True, slots=True)
class Spell:
    """What is remembered of a model: the number that its load asks for, and how long it has been busy or quiet."""

    target: int
    at: float
    busy_since: float | None = None
    busy_at: float = 0.0
    quiet_since: float | None = None
    changed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """The number changed, and why."""

    before: int
    after: int
    reason: Reason


def load(replicas: Iterable[ReplicaView], demand: Demand) -> Load:
    """Of one model. What is on its way out carries nothing."""
    found = list(replicas)
    ready = [r for r in found if r.state is State.READY]
    return Load(
        ready=len(ready),
        coming=sum(r.state in _COMING for r in found),
        places=sum(r.run.parallel for r in ready if r.run is not None),
        in_flight=demand.in_flight,
        waiting=demand.waiting,
    )


def step(
    before: Spell | None, seen: Load, least: int, most: int, settings: FleetSettings, now: float, name: str = ""
) -> tuple[Spell, Step | None]:
    """The next memory, and the change of the number, if there is one. `least`, `most`: the bounds that hold."""
    if before is None or now - before.at > FORGOTTEN_S:
        # The fleet is the truth about what runs: a planner that comes new takes it as it is.
        before = Spell(seen.ready + seen.coming, now)
    target = min(max(before.target, least), most)
    spell = _felt(replace(before, target=target), seen, settings, now)
    if _may_grow(spell, seen, settings, now) and target < most:
        wait = f"{seen.waiting} requests wait" if seen.waiting else "requests wait in the engines"
        places = "its only place has" if seen.places == 1 else f"its {seen.places} places have"
        taken_s = now - (spell.busy_since or now)
        up = f"{wait}, and {places} been taken for {taken_s:.0f} s"
        return _changed(spell, target + 1, "load_up", up, now, name)
    if spell.quiet_since is not None and now - spell.quiet_since >= settings.scale_down_after_s and target > least:
        quiet_s = now - spell.quiet_since
        down = (
            f"{seen.in_flight} of its {seen.places} places have been in use at most for "
            f"{quiet_s:.0f} s, and one replica less carries that"
        )
        return _changed(spell, target - 1, "load_down", down, now, name)
    return spell, None


def unheard(before: Spell | None, now: float) -> Spell | None:
    """No gateway tells of its load: the number stays, and spells begin anew."""
    return None if before is None else replace(before, at=now, busy_since=None, quiet_since=None)


def _felt(before: Spell, seen: Load, settings: FleetSettings, now: float) -> Spell:
    busy_since, busy_at = before.busy_since, before.busy_at
    if seen.coming:  # how busy it is without that one says nothing
        busy_since = None
    elif seen.busy:
        busy_since, busy_at = (now if busy_since is None else busy_since), now
    elif now - busy_at > _BLINK_S:
        busy_since = None
    quiet = seen.quiet(settings.scale_down_share, before.target)
    quiet_since = (now if before.quiet_since is None else before.quiet_since) if quiet else None
    return replace(before, at=now, busy_since=busy_since, busy_at=busy_at, quiet_since=quiet_since)


def _may_grow(spell: Spell, seen: Load, settings: FleetSettings, now: float) -> bool:
    if not seen.busy or spell.busy_since is None or now - spell.busy_since < settings.scale_up_after_s:
        return False
    return seen.ready >= spell.target and now - spell.changed_at >= settings.scale_pause_s


def _changed(spell: Spell, after: int, code: str, said: str, now: float, name: str) -> tuple[Spell, Step]:
    reason = Reason(code, f"from {spell.target} to {after} replicas: {said}", f"llmgw scale {name}")
    changed = Step(spell.target, after, reason)
    return replace(spell, target=after, busy_since=None, quiet_since=None, changed_at=now), changed
