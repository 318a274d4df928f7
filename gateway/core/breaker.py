"""A small circuit breaker per replica: after failures in a row it is avoided for a while, then tried once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

AFTER = 3
"""Failures in a row that open it; a refused connection opens it at once."""
FIRST_S = 1.0
MOST_S = 30.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """`open_until` in the caller's monotonic seconds."""

    failures: int = 0
    open_until: float = 0.0

    def allows(self, now: float) -> bool:
        return now >= self.open_until

    def failed(self, now: float, at_once: bool = False) -> Breaker:
        failures = self.failures + 1
        over = failures - (1 if at_once else AFTER)
        if over < 0:
            return Breaker(failures, self.open_until)
        return Breaker(failures, now + min(MOST_S, FIRST_S * 2 ** min(over, 8)))


CLOSED = Breaker()
"""What any success brings it back to."""
