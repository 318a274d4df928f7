"""A replica's life: its states, the legal ways between them, and what a node's report makes of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.wire.shard import CACHE_MEMORY, GPU_MEMORY, ShardState
from llmgw.cluster.core.sections import FleetSettings


class State(StrEnum):
    PENDING = "pending"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    PARKED = "parked"
    LOST = "lost"


_ENDS = frozenset({State.STOPPING})
_RUNS = frozenset({State.STARTING, State.LOADING, State.READY})
LEGAL: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.STARTING, State.PARKED}) | _ENDS,
    State.STARTING: _RUNS | {State.PENDING, State.BACKOFF, State.PARKED, State.LOST} | _ENDS,
    State.LOADING: _RUNS | {State.PENDING, State.BACKOFF, State.PARKED, State.LOST} | _ENDS,
    State.READY: _RUNS | {State.DRAINING, State.BACKOFF, State.PARKED, State.LOST} | _ENDS,
    State.DRAINING: frozenset({State.LOST}) | _ENDS,
    State.STOPPING: frozenset(),
    State.BACKOFF: _RUNS | {State.PENDING, State.PARKED, State.LOST} | _ENDS,
    State.PARKED: frozenset({State.PENDING, State.STARTING}) | _ENDS,
    State.LOST: _RUNS | {State.BACKOFF, State.PARKED, State.PENDING} | _ENDS,
}
"""Where a replica may go from a state; from `stopping` only away."""

PLACED = frozenset({*_RUNS, State.DRAINING, State.BACKOFF})
"""What runs, or is about to, on a node that is heard."""
ORDERED = PLACED | {State.LOST}
"""What a node is asked to run. Of a lost one only what it still ran when it was heard last: it may merely have been
silent for a while, and when it is heard again that decides."""
ALIVE = frozenset({ShardState.FETCHING, ShardState.STARTING, ShardState.LOADING, ShardState.READY})

TOO_SMALL = frozenset({GPU_MEMORY, CACHE_MEMORY})
_HELPS = (
    "the same start would end so again on this card, and is not tried: what helps is less context, fewer requests at "
    "once, more cards or larger ones"
)

_WORST = (
    ShardState.FAILED,
    ShardState.STOPPED,
    ShardState.STOPPING,
    ShardState.FETCHING,
    ShardState.STARTING,
    ShardState.LOADING,
    ShardState.READY,
)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank as last reported; None: its node does not report it (now, where it has an incarnation)."""

    observed: ShardState | None
    incarnation: int | None = None
    reason: str = ""
    node: str = ""
    since: float | None = None
    """When its state began, by its node's clock."""
    cause: str = ""
    """Of a failure for want of a card's memory: see `agent.wire.shard`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica before a report is taken in."""

    state: State
    incarnation: int
    failures: int = 0
    ready_at: float | None = None
    since: float | None = None
    reason: str = ""
    next_try_at: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a report makes of a replica. `gone`: nothing of it runs any more, its row may go."""

    state: State
    reason: str = ""
    reason_code: str = ""
    failures: int = 0
    next_try_at: float | None = None
    gone: bool = False


def observed(seen: Seen, ranks: Sequence[Rank], settings: FleetSettings, now: float) -> Outcome | None:
    """What the ranks' reports make of a replica; None: nothing new."""
    if seen.state is State.STOPPING:
        ended = all(r.observed in (None, ShardState.STOPPED, ShardState.FAILED) for r in ranks)
        return Outcome(seen.state, gone=True) if ended else None
    if seen.state in (State.PARKED, State.PENDING):
        return None
    if len(ranks) > 1:
        if seen.state is State.BACKOFF:
            return _died_earlier(seen, ranks)  # what is left is being ended: the next try begins all ranks anew
        broken = _broken(seen, ranks)
        if broken is not None and seen.state is State.DRAINING:
            return Outcome(State.STOPPING, broken[0], "failed_while_draining")
        if broken is not None:
            return failed(seen, broken[0], settings, now, broken[1])
    current = [r for r in ranks if r.observed is not None and (r.incarnation or 1) >= seen.incarnation]
    if not current:
        return None
    worst = min(current, key=lambda r: _WORST.index(r.observed or ShardState.STOPPED))
    match worst.observed:
        case ShardState.FAILED if seen.state is State.DRAINING:
            return Outcome(State.STOPPING, worst.reason, "failed_while_draining")
        case ShardState.FAILED:
            return None if seen.state is State.BACKOFF else failed(seen, worst.reason, settings, now, worst.cause)
        case ShardState.READY if len(current) == len(ranks):
            target = State.READY
        case ShardState.LOADING | ShardState.READY:
            target = State.LOADING
        case _:
            target = State.STARTING
    if seen.state is State.DRAINING or target is seen.state:
        return None
    failures = seen.failures
    reason = "" if target is State.READY else worst.reason
    return Outcome(target, reason, "", failures)


def together(state: State, ranks: int) -> bool:
    """Whether a node is asked to run its rank: of several none is left running while one has failed, since it holds
    its cards for nothing, and an engine may wait for the dead one for ever."""
    return state in ORDERED and not (state is State.BACKOFF and ranks > 1)


def _broken(seen: Seen, ranks: Sequence[Rank]) -> tuple[str, str] | None:
    """Why the ranks are no replica any more: the dead one's words and its cause. One that its node began and no longer
    knows is as dead as one that failed."""
    begun = [(n, r) for n, r in enumerate(ranks) if r.incarnation is not None and r.incarnation >= seen.incarnation]
    dead = [(n, r) for n, r in begun if r.observed is ShardState.FAILED]
    if dead:
        first = min(dead, key=lambda nr: (nr[1].since or 0.0, nr[0]))
        return _words(*first), first[1].cause
    gone = next(((n, r) for n, r in begun if r.observed is None), None)
    return (f"{_where(*gone)} is no longer there", "") if gone is not None else None


def _died_earlier(seen: Seen, ranks: Sequence[Rank]) -> Outcome | None:
    """A rank that fails takes the others with it within a moment, and any of them may be heard first: the one that
    died first is the one to be blamed."""
    blamed = next((r for n, r in enumerate(ranks) if _words(n, r) == seen.reason), None)
    if blamed is None or blamed.since is None:
        return None
    for number, rank in enumerate(ranks):
        current = rank.observed is ShardState.FAILED and (rank.incarnation or 0) >= seen.incarnation
        if current and rank.since is not None and rank.since < blamed.since:
            code = rank.cause or "start_failed"
            return Outcome(State.BACKOFF, _words(number, rank), code, seen.failures, seen.next_try_at)
    return None


def _words(number: int, rank: Rank) -> str:
    return f"{_where(number, rank)}: {rank.reason or 'it ended without a word'}"


def _where(number: int, rank: Rank) -> str:
    return f"rank {number}{f' on {rank.node}' if rank.node else ''}"


def failed(seen: Seen, reason: str, settings: FleetSettings, now: float, cause: str = "") -> Outcome:
    """Back-off, doubled with each failure in a row; parked, with the reason, after the last one. A start for which the
    card is too small is parked at once: nobody else has the card, and the next one would end as it did."""
    served = seen.state is State.READY and seen.since is not None and now - seen.since >= settings.healthy_s
    failures = 1 if served else seen.failures + 1
    words = reason or "the engine ended without a word"
    if cause in TOO_SMALL and seen.state in (State.STARTING, State.LOADING):
        return Outcome(State.PARKED, f"{words}; {_HELPS}", cause, failures)
    if failures >= settings.park_after:
        what = f"{failures} starts in a row failed; the last" if failures > 1 else "its start failed"
        sentence = f"{what}: {words}"
        return Outcome(State.PARKED, sentence, "parked", failures)
    wait_s = min(settings.backoff_first_s * 2 ** (failures - 1), settings.backoff_most_s)
    return Outcome(State.BACKOFF, words, cause or "start_failed", failures, now + wait_s)
