"""How soon a replica would send its first token: what was measured of it, and what that says of one more request. Pure.

Texts are counted in bytes of the request, which the gateway has; tokens are only known when the answer is over.
"""

from __future__ import annotations

SHARE = 0.2
"""How much one measurement counts against all before it."""
LEAST_BYTES = 512
"""Below this a text says nothing about speed, only about the constant part."""
RATE = 8_000.0
"""Bytes a second read of a prompt, until one replica of the model was measured."""
SERVICE_S = 1.0


FORGET_S = 15.0
"""After this long without a measurement half of what was learned of one replica is given up for what is known of all:
one slow moment must not keep a replica from being measured again."""
DOUBT = 2
"""So many measurements weigh as much as what is known of all."""
NOISE = 1.5
"""Replicas that differ by less are alike: else the one that looks a little faster would get everything."""


class Pace:
    """What is known of one replica's speed; None until it was seen."""

    __slots__ = ("_count", "_last", "base_s", "rate", "service_s", "trust")

    def __init__(self) -> None:
        self.rate: float | None = None
        """Bytes of a prompt that it reads a second."""
        self.base_s = 0.0
        """To the first token of an empty prompt."""
        self.service_s: float | None = None
        """Of a whole answer."""
        self.trust = 1.0
        """How much of what should be in its prefix cache is there, 0 to 1."""
        self._count = 0
        self._last = 0.0

    def rate_at(self, now: float, usual: float) -> float:
        """What to reckon with; `usual`: of the model's replicas."""
        if self.rate is None:
            return usual
        own = self._count / (self._count + DOUBT) * 0.5 ** ((now - self._last) / FORGET_S)
        rate = usual + own * (self.rate - usual)
        return usual if usual < NOISE * rate and rate < NOISE * usual else rate

    def answered(self, now: float, passed_s: float, unread: int, ahead: int) -> None:
        """The first token came after `passed_s`; `unread` bytes of its prompt had to be read, `ahead` bytes of
        others before them."""
        work = unread + ahead
        if work < LEAST_BYTES:
            self.base_s = passed_s if self.base_s == 0.0 else _mix(self.base_s, passed_s)
        else:
            rate = work / max(passed_s - min(self.base_s, passed_s / 2), 1e-4)
            self.rate = rate if self.rate is None else _mix(self.rate, rate)
            self._count += 1
            self._last = now

    def served(self, passed_s: float) -> None:
        self.service_s = passed_s if self.service_s is None else _mix(self.service_s, passed_s)

    def cached(self, expected: float, found: float) -> None:
        """Shares of a prompt: what should have been in the cache and what the engine says was."""
        self.trust = _mix(self.trust, min(1.0, found / expected))


def _mix(old: float, new: float) -> float:
    return old + SHARE * (new - old)
