"""From what a node should run and what it runs to what it does next. Pure, and the same at every step.

Nothing is stopped in the name of a store that does not own it, nor while the control plane has not yet heard from
its fleet, nor because of an older order. A store owns what it started, and what runs just as its order names it
(same id, incarnation and fingerprint): from then on it may stop that, and the former owner may not. What a store
took over, or an administrator gave up, is named in its order, and ended whoever owns it. A shard that failed is left
failed: the control plane decides about another try, and asks for it with a new incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.wire.messages import Desired
from agent.wire.shard import ShardSpec, ShardState

_OVER = (ShardState.STOPPED, ShardState.FAILED)


@dataclass(frozen=True, slots=True)
class Held:
    """A shard as the agent holds it. `store_id` is the store that owns it."""

    shard_id: str
    store_id: str
    incarnation: int
    fingerprint: str
    port: int
    state: ShardState
    told: bool = True
    """The control plane was told of this state: a failure that is forgotten before that is never heard of."""

    @property
    def lives(self) -> bool:
        return self.state not in _OVER


@dataclass(frozen=True, slots=True)
class Taken:
    """The newest order that the agent took up, of one store."""

    store_id: str
    term: int
    generation: int


@dataclass(frozen=True, slots=True)
class Start:
    """Start it; what is left of an earlier run of the same id is forgotten first."""

    spec: ShardSpec
    store_id: str


@dataclass(frozen=True, slots=True)
class Own:
    """It runs just as the order names it: from now on it is that store's."""

    shard_id: str
    store_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    shard_id: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Forget:
    """It is over and no longer wanted: remove its record."""

    shard_id: str


Action = Start | Own | Stop | Forget


_REMEMBERED = 8


def accepts(taken: tuple[Taken, ...], desired: Desired) -> bool:
    """Whether `desired` is not older than the last order of the same store, also when another's came between."""
    return all(
        (desired.term, desired.generation) >= (t.term, t.generation) for t in taken if t.store_id == desired.store_id
    )


def take(taken: tuple[Taken, ...], desired: Desired) -> tuple[Taken, ...]:
    """What was taken up until now, the newest last; the last few stores are remembered."""
    others = tuple(t for t in taken if t.store_id != desired.store_id)
    return (*others, Taken(desired.store_id, desired.term, desired.generation))[-_REMEMBERED:]


def step(desired: Desired | None, held: tuple[Held, ...]) -> tuple[Action, ...]:
    """What to do now. Run it again whenever an order arrives or a shard's state changes."""
    if desired is None:
        return ()
    wanted = {spec.shard_id: spec for spec in desired.shards}
    mine = {h.shard_id: h for h in held}
    actions: list[Action] = []
    for h in held:
        spec = wanted.get(h.shard_id)
        if spec is None:
            actions += _unwanted(desired, h)
        elif not h.lives:
            continue
        elif _same(spec, h):
            if h.store_id != desired.store_id:
                actions.append(Own(h.shard_id, desired.store_id))
        elif _may_stop(desired, h):
            actions.append(Stop(h.shard_id, "it is started afresh, as the control plane asked"))
    busy = {h.port for h in held if h.lives}
    for spec in wanted.values():
        one = mine.get(spec.shard_id)
        if one is not None and (one.lives or (one.state is ShardState.FAILED and _same(spec, one))):
            continue
        if spec.port in busy and any(h.port == spec.port and _leaves(desired, h, wanted) for h in held):
            continue  # its port is about to be free
        actions.append(Start(spec, desired.store_id))
    return tuple(actions)


def _same(spec: ShardSpec, h: Held) -> bool:
    return spec.incarnation == h.incarnation and spec.fingerprint == h.fingerprint


def _may_stop(desired: Desired, h: Held) -> bool:
    owned = desired.store_id == h.store_id or h.shard_id in desired.taken_over
    return desired.synced and owned and h.state is not ShardState.STOPPING


def _leaves(desired: Desired, h: Held, wanted: dict[str, ShardSpec]) -> bool:
    """Whether it still lives and is being stopped, or is stopped in this step."""
    spec = wanted.get(h.shard_id)
    goes = spec is None or not _same(spec, h)
    return h.state is ShardState.STOPPING or (h.lives and goes and _may_stop(desired, h))


def _unwanted(desired: Desired, h: Held) -> tuple[Action, ...]:
    if not h.lives:
        return (Forget(h.shard_id),) if desired.synced and h.told else ()
    if _may_stop(desired, h):
        return (Stop(h.shard_id, "the control plane no longer wants it"),)
    return ()
