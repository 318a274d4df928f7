"""A circuit breaker per replica: after failures in a row it is avoided for a while, then tried with one request. Pure.

Three states in one value: closed (`open_until` is 0), open (before `open_until`), half-open (after it). In the last,
one request at a time is let through to prove the replica; the permission is lent for `PROBE_S`, so that a probe
whose end nobody tells cannot keep the replica out for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

AFTER = 3
"""Failures in a row that open it; a refused connection opens it at once."""
FIRST_S = 1.0
MOST_S = 30.0
PROBE_S = 30.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """Times in the caller's monotonic seconds. `level`: how often the pause was doubled. `failed_at`: the last one."""

    failures: int = 0
    open_until: float = 0.0
    level: int = 0
    probe_until: float = 0.0
    failed_at: float = float("-inf")

    def allows(self, now: float) -> bool:
        return now >= self.open_until and now >= self.probe_until

    def half_open(self, now: float) -> bool:
        return 0.0 < self.open_until <= now

    def sent(self, now: float) -> Breaker:
        """A request leaves for the replica: in half-open it is the probe, unless there is one already."""
        if self.half_open(now) and now >= self.probe_until:
            return replace(self, probe_until=now + PROBE_S)
        return self

    def failed(self, now: float, at_once: bool = False) -> Breaker:
        """One more failure. While open it only moves the end (ten requests that fail together are one event); in
        half-open it doubles the pause."""
        failures = self.failures + 1
        if self.open_until == 0.0:
            if failures < AFTER and not at_once:
                return Breaker(failures, failed_at=now)
            return Breaker(failures, now + FIRST_S, 0, 0.0, now)
        level = self.level + 1 if now >= self.open_until else self.level
        pause = min(MOST_S, FIRST_S * 2 ** min(level, 8))
        return Breaker(failures, max(self.open_until, now + pause), level, 0.0, now)

    def succeeded(self, began: float) -> Breaker:
        """An attempt that began at `began` ended well: closed, unless the last failure came after its beginning."""
        if self.open_until and began < self.failed_at:
            return self
        return CLOSED

    def released(self, probe_until: float) -> Breaker:
        """The probe that was let go until `probe_until` ended without a verdict (its client left, or its request was at
        fault): another may go. One that was let go since is not touched."""
        return replace(self, probe_until=0.0) if self.probe_until == probe_until else self


CLOSED = Breaker()
"""Where it begins, and what success brings it back to."""
