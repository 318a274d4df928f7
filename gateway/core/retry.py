"""Whether a failed attempt is made again: only before content reached the client, a bounded number of times. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import ceil

from gateway.core import errors


class Kind(Enum):
    """How an attempt failed."""

    CONNECT = "connect"
    """Nobody listens, or the connection was not made in time."""
    STALE = "stale"
    """A kept connection was closed before any byte of an answer: the engine never saw the request."""
    RESET = "reset"
    """The connection broke before the answer's content."""
    SILENT = "silent"
    """No answer within the limit."""
    STATUS = "status"
    """5xx, 408 or 429, or 401/403: the gateway's own key was refused."""
    REPORTED = "reported"
    """An error in-band, or an ending that means one."""
    BAD_ANSWER = "bad_answer"
    """No HTTP, or more than the limits allow."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: Kind
    sentence: str
    code: str = ""
    status: int = 0
    retry_after_s: float | None = None
    """The engine's own word, from `retry_after.wait_s`."""

    @property
    def against_replica(self) -> bool:
        """Whether the breaker counts it. A busy engine (429) and a closed kept connection say nothing of health."""
        return self.kind is not Kind.STALE and self.status != 429

    def error(self) -> errors.GatewayError:
        """What the client is told when it is not tried again."""
        if self.kind is Kind.SILENT:
            return errors.EngineTimedOut(self.sentence)
        if self.status == 429:
            return errors.Unavailable(
                self.sentence, code="engine_busy", retry_after_s=max(1, ceil(self.retry_after_s or 1))
            )
        if self.kind is Kind.CONNECT:
            return errors.EngineFailed(self.sentence, retry_after_s=2)
        return errors.EngineFailed(self.sentence, code=self.code)


@dataclass(frozen=True, slots=True)
class Again:
    after_s: float
    counts: bool = True
    """Whether it uses up one of the attempts."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    error: errors.GatewayError


def decide(
    failure: Failure,
    *,
    attempts: int,
    retries: int,
    content_sent: bool,
    others: bool,
    stale_used: bool,
    repeatable: bool = True,
) -> Again | GiveUp:
    """After attempt number `attempts` (from 1). `others`: a replica is left that this request has not tried.

    A generation has no effect but its answer, so one whose answer never reached the client may be asked for
    again. Work with effects is not `repeatable`: only what never left may be sent again.
    """
    if content_sent or (not repeatable and failure.kind is not Kind.CONNECT):
        return GiveUp(failure.error())
    if failure.kind is Kind.STALE and not stale_used:
        return Again(0.0, counts=False)
    if attempts > retries:
        return GiveUp(failure.error())
    return Again(0.0 if others else min(0.2 * 2 ** (attempts - 1), 1.0))
