"""What a model's clients are told: whether it serves, and if not, why and when to come again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.core.replica import State


@dataclass(frozen=True, slots=True)
class Copy:
    """What matters here of one replica. `heard`: its node is not lost."""

    state: State
    heard: bool = True
    reason: str = ""
    reason_code: str = ""
    next_try_at: float | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class ModelState:
    """`state`: serving | loading | parked | stopped | no_capacity."""

    state: str
    reason: str = ""
    retry_after_s: int = 5


def model_state(name: str, *, stopped: bool, wanted: int, copies: Iterable[Copy], now: float) -> ModelState:
    """The best that any copy gives."""
    found = list(copies)
    by = {state: [c for c in found if c.state is state] for state in State}
    if any(c.heard for c in by[State.READY]):
        return ModelState("serving", "", 0)
    if stopped or wanted == 0:
        return ModelState("stopped", f"{name} is stopped; an administrator can start it", 60)
    if by[State.LOADING] or by[State.STARTING]:
        known = [c.progress for c in (*by[State.LOADING], *by[State.STARTING]) if c.progress is not None]
        part = f" ({max(known):.0%})" if known else ""
        verb = "is loading" if by[State.LOADING] else "is starting"
        return ModelState("loading", f"{name} {verb}{part}", 5)
    if by[State.BACKOFF]:
        next_try = min((c.next_try_at for c in by[State.BACKOFF] if c.next_try_at is not None), default=now)
        wait_s = max(int(next_try - now) + 1, 1)
        why = _because(by[State.BACKOFF])
        return ModelState("loading", f"{name} failed to start and is tried again in {wait_s} s{why}", wait_s)
    if by[State.PENDING]:
        return ModelState("no_capacity", f"{name} waits for a node: {by[State.PENDING][0].reason}", 30)
    if by[State.PARKED]:
        why = _because(by[State.PARKED])
        return ModelState("parked", f"{name} is parked after failed starts; an administrator can retry it{why}", 60)
    return ModelState("loading", f"{name} is about to be placed", 5)


def _because(copies: list[Copy]) -> str:
    """The engine's last words, where a copy has them."""
    return next((f": {c.reason}" for c in copies if c.reason), "")
