"""The breaker against a machine that is written down another way; and that a probe's permission cannot be lost."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core import breaker
from gateway.core.breaker import CLOSED
from gateway.core.load import Load, Ticket
from gateway.core.router import Ask, not_broken
from gateway.core.snapshot import Endpoint


class Reference:
    """States by name, as in the books; the pause doubles only when a trial after it fails."""

    def __init__(self) -> None:
        self.state, self.in_a_row, self.until, self.pause, self.last_failure = "closed", 0, 0.0, 0.0, -1.0
        self.probes: dict[int, float] = {}

    def look(self, now: float) -> str:
        if self.state == "open" and now >= self.until:
            self.state = "half-open"
            self.probes.clear()
        return self.state

    def allows(self, now: float) -> bool:
        if self.look(now) == "half-open":
            return not any(now < lent for lent in self.probes.values())
        return self.state == "closed"

    def sent(self, now: float, number: int) -> None:
        if self.look(now) == "half-open" and self.allows(now):
            self.probes = {number: now + breaker.PROBE_S}

    def failed(self, now: float, at_once: bool) -> None:
        self.last_failure = now
        state = self.look(now)
        self.in_a_row += 1
        if state == "closed":
            if at_once or self.in_a_row >= breaker.AFTER:
                self.state, self.pause = "open", breaker.FIRST_S
                self.until = now + self.pause
        elif state == "half-open":
            self.state, self.pause = "open", min(breaker.MOST_S, self.pause * 2)
            self.until = now + self.pause
        else:
            self.until = max(self.until, now + self.pause)

    def succeeded(self, now: float, began: float) -> None:
        if self.look(now) == "closed" or began >= self.last_failure:
            self.__init__()  # type: ignore[misc]

    def ended(self, number: int) -> None:
        self.probes.pop(number, None)


class Breakers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.load = Load(Endpoint("r", "m", "h", 1, "n"))
        self.reference = Reference()
        self.open: dict[int, Ticket] = {}
        self.count = 0

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 1.5, 4.0, 29.0, 31.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def send(self) -> None:
        """Allowed or not: where no other replica is left, a broken one is asked all the same."""
        self.count += 1
        self.reference.sent(self.now, self.count)
        self.open[self.count] = self.load.begin(self.now)

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 10_000), end=st.sampled_from(["served", "failed", "refused", "left", "client's 400"]))
    def end(self, pick: int, end: str) -> None:
        number = list(self.open)[pick % len(self.open)]
        ticket = self.open.pop(number)
        if end == "served":
            self.reference.succeeded(self.now, ticket.began)
            ticket.served(self.now)
        elif end in ("failed", "refused"):
            self.reference.failed(self.now, end == "refused")
            ticket.failed(self.now, end == "refused")
        before = self.load.breaker.failures
        ticket.end()
        ticket.end()
        assert self.load.breaker.failures == before, "an end without a verdict is no failure"
        self.reference.ended(number)

    @invariant()
    def agree(self) -> None:
        assert not_broken(self.load, Ask(self.now)) == self.reference.allows(self.now)
        assert self.load.in_flight == len(self.open)

    @invariant()
    def never_stuck(self) -> None:
        later = self.now + breaker.MOST_S + breaker.PROBE_S
        assert self.load.breaker.allows(later)


Breakers.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBreaker = Breakers.TestCase


def test_a_burst_that_fails_together_is_one_event() -> None:
    found = CLOSED
    for _ in range(20):
        found = found.failed(100.0)
    assert found.allows(101.0)
    assert not found.sent(101.0).allows(101.5), "one probe at a time"
    again = found.sent(101.0).failed(102.0)
    assert not again.allows(103.9)
    assert again.allows(104.0)


def test_an_old_answer_proves_nothing() -> None:
    opened = CLOSED.failed(100.0, at_once=True)
    assert opened.succeeded(99.0) is opened
    assert opened.succeeded(101.0) is CLOSED
