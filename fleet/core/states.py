"""What a model's clients are told: whether it serves, and if not, why, when it will, and when to come again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.core.replica import State
from fleet.core.scale import Count


@dataclass(frozen=True, slots=True)
class Copy:
    """What matters here of one replica. `heard`: its node is not lost. Times are Unix seconds."""

    state: State
    heard: bool = True
    reason: str = ""
    reason_code: str = ""
    next_try_at: float | None = None
    progress: float | None = None
    placed_at: float | None = None
    fetch_s: float = 0.0
    """What bringing its weights took, or usually takes where that is under way."""
    held_by: str = ""
    """The model that holds the card it waits for …"""
    free_at: float | None = None
    """… and when that should be free."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """`state`: serving | idle (loads when asked) | starting | loading | waiting (for a card that `held_by` holds) |
    parked | stopped (somebody did) | not_running (nobody wants it to run) | no_capacity. `ready_at`: when it should
    serve, None where nobody knows."""

    state: str
    reason: str = ""
    retry_after_s: int = 5
    ready_at: float | None = None
    held_by: str = ""


def model_state(
    name: str, count: Count, copies: Iterable[Copy], now: float, start_s: float | None = None
) -> ModelState:
    """The best that any copy gives. `count`: how many are wanted now, and why; `start_s`: how long its starts take."""
    found = list(copies)
    by = {state: [c for c in found if c.state is state] for state in State}
    if any(c.heard for c in by[State.READY]):
        return ModelState("serving", "", 0)
    if not count.replicas and not count.on_demand:
        return _resting(name, count)
    if by[State.LOADING] or by[State.STARTING]:
        return _coming(name, by[State.LOADING], by[State.STARTING], start_s)
    if by[State.BACKOFF]:
        next_try = min((c.next_try_at for c in by[State.BACKOFF] if c.next_try_at is not None), default=now)
        wait_s = max(int(next_try - now) + 1, 1)
        why = _because(by[State.BACKOFF])
        sentence = f"{name} failed to start and is tried again in {wait_s} s{why}"
        return ModelState("loading", sentence, wait_s, _after(next_try, start_s))
    if by[State.PENDING] and not (by[State.PARKED] and not by[State.PENDING][0].held_by):
        return _pending(name, by[State.PENDING][0], start_s)
    if by[State.PARKED]:
        why = _because(by[State.PARKED])
        return ModelState("parked", f"{name} is parked after failed starts; an administrator can retry it{why}", 60)
    if not count.replicas:
        return ModelState("idle", f"{name} is loaded when somebody asks for it: the next request starts it", 5)
    return ModelState("starting", f"{name} is about to be placed", 5)


def _resting(name: str, count: Count) -> ModelState:
    if count.reason.code == "none_wanted":
        sentence = f"{name} is kept and not run (scaling: min 0, max 0); an administrator can have it run"
        return ModelState("not_running", sentence, 60)
    if count.reason.code == "model_stopped":
        return ModelState("stopped", f"{name} is stopped; an administrator can start it", 60)
    return ModelState("stopped", f"{name} is stopped: {count.reason.sentence}", 60)


def _coming(name: str, loading: list[Copy], starting: list[Copy], start_s: float | None) -> ModelState:
    copies = loading or starting
    shown = [c.progress for c in (*loading, *starting) if c.progress is not None]
    part = f" ({max(shown):.0%})" if shown else ""
    placed = min((c.placed_at + c.fetch_s for c in copies if c.placed_at is not None), default=None)
    word = "loading" if loading else "starting"
    return ModelState(word, f"{name} is {word}{part}", 5, _after(placed, start_s))


def _pending(name: str, copy: Copy, start_s: float | None) -> ModelState:
    if not copy.held_by:
        return ModelState("no_capacity", f"{name} waits for a node: {copy.reason}", 30)
    return ModelState("waiting", f"{name}: {copy.reason}", 30, _after(copy.free_at, start_s), copy.held_by)


def _after(at: float | None, start_s: float | None) -> float | None:
    """To a tenth: it is published, and must not change with every look."""
    return None if at is None or start_s is None else round(at + start_s, 1)


def _because(copies: list[Copy]) -> str:
    """The engine's last words, where a copy has them."""
    return next((f": {c.reason}" for c in copies if c.reason), "")
