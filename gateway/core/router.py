"""Which replica gets a request: filters drop, scorers add, one choice with its reason. Pure.

A rule is one function and one line in `FILTERS` or `SCORERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agent.wire.reason import Reason
from gateway.core.breaker import Breaker
from gateway.core.snapshot import Endpoint


class Load(Protocol):
    """A replica as the router sees it: the edge's live object, read and never changed."""

    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def breaker(self) -> Breaker: ...


L = TypeVar("L", bound=Load)


@dataclass(frozen=True, slots=True)
class Ask:
    """`tried`: replicas that failed this request already. `turn` breaks ties in rotation. `now` is monotonic."""

    now: float
    turn: int = 0
    tried: Collection[str] = ()


def not_draining(load: Load, ask: Ask) -> bool:
    return not load.endpoint.draining


def not_tried(load: Load, ask: Ask) -> bool:
    return load.endpoint.replica not in ask.tried


def not_broken(load: Load, ask: Ask) -> bool:
    return load.breaker.allows(ask.now)


def least_load(load: Load, ask: Ask) -> float:
    """Requests in flight relative to what the replica can carry; 0 when idle, falling."""
    endpoint = load.endpoint
    return -load.in_flight / (max(1, endpoint.parallel) * max(endpoint.weight, 0.001))


MUST: tuple[Callable[[Load, Ask], bool], ...] = (not_draining,)
"""Dropped whatever is left."""
RATHER: tuple[Callable[[Load, Ask], bool], ...] = (not_tried, not_broken)
"""Dropped only while others are left: one that failed a moment ago is better than none."""
SCORERS: tuple[Callable[[Load, Ask], float], ...] = (least_load,)


def choose(loads: Sequence[L], ask: Ask) -> tuple[L, Reason] | Reason:
    """The replica and why, or why there is none."""
    left = list(loads)
    for keep in MUST:
        left = [x for x in left if keep(x, ask)]
    if not left:
        return _DRAINING if loads else _NONE
    known = len(left)
    for keep in RATHER:
        left = [x for x in left if keep(x, ask)] or left
    if len(left) == 1:
        return left[0], _only(known)
    best, top = left[0], float("-inf")
    first = ask.turn % len(left)
    for at in range(first, first + len(left)):
        load = left[at % len(left)]
        score = 0.0
        for scorer in SCORERS:
            score += scorer(load, ask)
        if score > top:
            best, top = load, score
    return best, _least(len(left), known)


_NONE = Reason("no_replica", "no replica of this model is ready")
_DRAINING = Reason("all_draining", "every replica of this model is being drained")
_reasons: dict[tuple[int, int], Reason] = {}


def _only(known: int) -> Reason:
    if known == 1:
        return _ONLY
    return _reasons.setdefault((1, known), Reason("only_left", f"the only one of {known} replicas that has not failed"))


def _least(left: int, known: int) -> Reason:
    found = _reasons.get((left, known))
    if found is None:
        rest = f", {known - left} avoided" if known > left else ""
        found = _reasons[left, known] = Reason("least_load", f"the least busy of {left} replicas{rest}")
    return found


_ONLY = Reason("only_replica", "the only replica")
