"""What one replica has to do, as one edge knows it: its own requests, everybody else's, what the engine says. Pure.

Counts change in a `Ticket` only: it counts when it is made, before anything is waited for, and gives everything back
once, however the attempt ends. Nothing else resets or corrects them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.breaker import CLOSED, Breaker
from gateway.core.predict import LEAST_BYTES, Pace
from gateway.core.sessions import seed
from gateway.core.snapshot import Endpoint

FULL = 0.8
"""Of the KV cache: from here on it is counted against a replica."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """What an engine says of itself; None: it does not say."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None


class Turn:
    """Whose turn it is among equals, shared by a model's replicas: one that comes, or comes back, is not given all that
    it missed."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0.0


class Load:
    """One replica. The edge's live object is one; the router reads and never changes it."""

    __slots__ = (
        "_elsewhere",
        "_engine_others",
        "_engine_others_before",
        "bit",
        "breaker",
        "draining",
        "endpoint",
        "foreign",
        "gauges",
        "in_flight",
        "name",
        "others",
        "pace",
        "parallel",
        "pressure",
        "resting_until",
        "seed",
        "turn",
        "turns",
        "unread",
        "weight",
    )

    def __init__(self, endpoint: Endpoint, in_flight: int = 0, breaker: Breaker = CLOSED) -> None:
        self.update(endpoint)
        self.name = endpoint.replica
        self.seed = seed(endpoint.replica)
        self.in_flight = in_flight
        self.unread = 0
        """Bytes of prompts that were sent and whose first token has not come."""
        self.breaker = breaker
        self.resting_until = 0.0
        """The engine asked to be left alone until then."""
        self.turn = Turn()
        self.turns = 0.0
        """Requests that it got, divided by its weight: of equals the one with the least is next."""
        self.bit = 0
        """Of the prefix tree."""
        self.pace = Pace()
        self.gauges = Gauges()
        self.others = 0
        """Requests there that are not ours, as far as known."""
        self.pressure = 0.0
        """0 to 1: how far the KV cache is beyond comfortable."""
        self.foreign = 0
        """The same as `others`, but of what the engine said only as much as it said twice in a row: an answer that
        ended between our count and its word is nobody's request, and would keep a place free for a second."""
        self._engine_others = self._engine_others_before = self._elsewhere = 0

    def update(self, endpoint: Endpoint) -> None:
        """A new snapshot: what the control side says of it."""
        self.endpoint = endpoint
        self.draining = endpoint.draining
        self.parallel = max(1, endpoint.parallel)
        self.weight = max(endpoint.weight, 0.001)

    # -- what others say

    def told(self, gauges: Gauges) -> None:
        """By the engine. What it does not say is unknown, not idle: then our own counts judge."""
        self.gauges = gauges
        known = gauges.running is not None or gauges.waiting is not None
        everybody = (gauges.running or 0) + (gauges.waiting or 0)
        self._engine_others_before = self._engine_others
        self._engine_others = max(0, everybody - self.in_flight) if known else 0
        usage = gauges.kv_usage
        self.pressure = 0.0 if usage is None else min(1.0, max(0.0, usage - FULL) / (1 - FULL))
        self._added()

    def shared(self, in_flight: int) -> None:
        """By the other edges: what they have in flight there."""
        self._elsewhere = max(0, in_flight)
        self._added()

    def _added(self) -> None:
        self.others = max(self._engine_others, self._elsewhere)
        self.foreign = max(min(self._engine_others, self._engine_others_before), self._elsewhere)

    # -- what we do

    def begin(self, now: float, size: int = 0, matched: int = 0) -> Ticket:
        """A request of `size` bytes is sent now, of which `matched` should be cached: counted from this moment."""
        return Ticket(self, now, size, matched)

    def rest(self, until: float) -> None:
        self.resting_until = max(self.resting_until, until)


class Ticket:
    """One attempt on one replica. `end` must follow, and may be called again."""

    __slots__ = ("_ahead", "_first_s", "_free", "_load", "_open", "_probe_until", "_unread", "began", "matched", "size")

    def __init__(self, load: Load, now: float, size: int, matched: int) -> None:
        self._load, self.began, self.size, self.matched = load, now, size, matched
        self._free = load.in_flight + load.others < load.parallel
        self._ahead = load.unread
        self._first_s: float | None = None
        self._unread = max(0, size - matched)
        load.unread += self._unread
        load.in_flight += 1
        load.turn.at = max(load.turns, load.turn.at)
        load.turns = load.turn.at + 1.0 / load.weight
        self._open = True
        self._probe_until = 0.0
        """Of the permission that it has from a half-open breaker."""
        if load.breaker is not CLOSED:
            before = load.breaker
            load.breaker = before.sent(now)
            if load.breaker is not before:
                self._probe_until = load.breaker.probe_until

    def first(self, now: float) -> None:
        """The first content of a stream came: its prompt is read, and the replica is alive."""
        self._read()
        self._first_s = now - self.began
        if self._load.breaker is not CLOSED:
            self._load.breaker = self._load.breaker.succeeded(self.began)

    def served(self, now: float, prompt: int | None = None, cached: int | None = None) -> None:
        """It ended well. `prompt`, `cached`: the engine's counts of tokens, where it said."""
        load, pace = self._load, self._load.pace
        pace.served(now - self.began)
        if load.breaker is not CLOSED:
            load.breaker = load.breaker.succeeded(self.began)
        unread = self.size - self.matched
        if prompt and cached is not None and self.size:
            unread = round(self.size * max(0, prompt - cached) / prompt)
            if self.matched >= LEAST_BYTES:
                pace.cached(self.matched / self.size, cached / prompt)
        if self._first_s is not None and self._free and self.size:
            pace.answered(now, self._first_s, unread, self._ahead)

    def failed(self, now: float, at_once: bool = False) -> None:
        self._load.breaker = self._load.breaker.failed(now, at_once)

    def end(self) -> None:
        if not self._open:
            return
        self._open = False
        self._read()
        load = self._load
        load.in_flight -= 1
        if self._probe_until:
            load.breaker = load.breaker.released(self._probe_until)

    def _read(self) -> None:
        self._load.unread -= self._unread
        self._unread = 0
