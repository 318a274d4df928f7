"""Shares of projects and keys: properties over arbitrary comings and goings."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.admission.fair import Entry, Fair, State
from gateway.core.admission.line import PASSES, Line
from gateway.core.admission.room import Room
from gateway.core.admission.shares import Shares

WEIGHTS = {"a": 1.0, "b": 3.0, "c": 0.5}


def depth(fair: Fair, project: str) -> int:
    flow = fair._projects.flows.get(project)
    return flow.waiting if flow is not None else 0


def entry(project: str, tokens: int = 10, key: str = "k", band: int = 1) -> Entry:
    return Entry(band, project, key, WEIGHTS[project], tokens, 0.0)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1000)), min_size=30, max_size=120),
    st.integers(1, 100),
)
def test_between_two_that_wait_all_the_while_it_is_fair_to_one_request_each(
    work: list[tuple[str, int]], steps: int
) -> None:
    fair = Fair()
    largest = dict.fromkeys(WEIGHTS, 1)
    for project, tokens in work:
        fair.wait(entry(project, tokens))
        largest[project] = max(largest[project], tokens)
    got = dict.fromkeys(WEIGHTS, 0)
    for _ in range(min(steps, len(work))):
        before = {name for name in WEIGHTS if depth(fair, name)}
        found = fair.next()
        assert found is not None
        got[found.project] += found.tokens
        for one in before:
            for two in before:
                apart = abs(Fraction(got[one]) / Fraction(WEIGHTS[one]) - Fraction(got[two]) / Fraction(WEIGHTS[two]))
                assert apart <= largest[one] / WEIGHTS[one] + largest[two] / WEIGHTS[two] + 1e-6
        if len(before) < 3:
            break  # from here on fewer share


def test_by_weight_and_by_key_within_a_project() -> None:
    fair = Fair()
    for _ in range(400):
        for key in ("k1", "k1", "k2"):
            fair.wait(entry("a", key=key))
        fair.wait(entry("b"))
    got: dict[tuple[str, str], int] = {}
    for _ in range(400):
        found = fair.next()
        assert found is not None
        got[found.project, found.key] = got.get((found.project, found.key), 0) + 1
    assert got == {("a", "k1"): 50, ("a", "k2"): 50, ("b", "k"): 300}


def test_what_was_really_taken_is_settled() -> None:
    """Both are reckoned at 10 tokens, and one always takes 40: it gets a quarter as many requests."""
    fair = Fair()
    weight = WEIGHTS["a"]
    got = {"x": 0, "y": 0}
    for name in got:
        for _ in range(400):
            fair.wait(Entry(1, name, "k", weight, 10, 0.0))
    for _ in range(300):
        found = fair.next()
        assert found is not None
        got[found.project] += 1
        fair.over(found, 40 if found.project == "x" else 10)
    assert abs(got["y"] - 4 * got["x"]) <= 8


def test_what_was_reckoned_too_high_is_given_back_although_it_comes_late() -> None:
    """Four are under way at once; all are reckoned at 40 tokens and take 10."""
    fair = Fair()
    inside: list[Entry] = []
    got = {"a": 0, "b": 0}
    for name in got:
        for _ in range(400):
            fair.wait(entry(name, 40))
    for _ in range(400):
        if len(inside) == 4:
            fair.over(inside.pop(0), 10)
        found = fair.next()
        assert found is not None
        inside.append(found)
        got[found.project] += 1
    assert abs(got["b"] - 3 * got["a"]) <= 12, got


def test_nobody_gathers_credit_while_away() -> None:
    fair = Fair()
    for _ in range(1000):
        fair.wait(entry("a"))
        one = fair.next()
        assert one is not None
        fair.over(one, 10)
    for _ in range(100):
        fair.wait(entry("a"))
        fair.wait(Entry(1, "late", "k", 1.0, 10, 0.0))
    got = [found.project for _ in range(20) if (found := fair.next()) is not None]
    assert 9 <= got.count("late") <= 11


class Comings(RuleBasedStateMachine):
    """A line of one model with a room of five: nothing leaks, nothing is negative, and no place stays empty."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.waiting: list[Entry] = []
        self.inside: list[Entry | None] = []
        """None: it never waited."""

    def room(self) -> Room:
        return Room(5, self.line.held)

    def pump(self) -> None:
        while (found := self.line.next(self.room())) is not None:
            assert found.state is State.LET_IN
            self.waiting.remove(found)
            self.inside.append(found)

    @rule(project=st.sampled_from("abc"), key=st.sampled_from("kl"), band=st.integers(0, 2), tokens=st.integers(1, 500))
    def comes(self, project: str, key: str, band: int, tokens: int) -> None:
        one = entry(project, tokens, key, band)
        if self.line.free(band, self.room()):
            self.line.enter()
            self.inside.append(None)
        else:
            self.line.wait(one)
            self.waiting.append(one)
            self.pump()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0))
    def leaves(self, which: int) -> None:
        self.line.left(self.waiting.pop(which % len(self.waiting)))

    @precondition(lambda self: self.inside)
    @rule(which=st.integers(0), took=st.one_of(st.none(), st.integers(0, 5000)))
    def ends(self, which: int, took: int | None) -> None:
        one = self.inside.pop(which % len(self.inside))
        self.line.over(one, took)
        self.pump()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0))
    def is_put_out(self, which: int) -> None:
        found = self.line.put_out_for(self.waiting[which % len(self.waiting)])
        self.waiting.remove(found)
        self.line.left(found)

    @rule()
    def sweep(self) -> None:
        self.line.sweep()

    @invariant()
    def counts_are_true(self) -> None:
        line = self.line
        assert (line.waiting, line.held) == (len(self.waiting), len(self.inside))
        for rank, band in enumerate(line.bands):
            mine = [e for e in self.waiting if e.band == rank]
            assert band.waiting == len(mine)
            assert band.tokens == sum(e.tokens for e in mine)
            assert abs(band.weight - sum(WEIGHTS[p] for p in {e.project for e in mine})) < 1e-6
            for project in WEIGHTS:
                assert depth(band, project) == sum(e.project == project for e in mine)
            for flow in band._projects.flows.values():
                assert flow.waiting >= 0
                assert flow.held >= 0
                assert flow.tokens >= 0
            assert len(band._projects._heap) <= 2 * len(band._projects.flows) + 17
        assert all(e.state is State.WAITS for e in self.waiting)

    @invariant()
    def no_place_is_empty_while_somebody_waits_for_it(self) -> None:
        if any(e.band == 0 for e in self.waiting) or any(e.band == 1 for e in self.waiting):
            assert self.line.held >= 5
        elif self.waiting:
            assert self.line.held >= 4

    @invariant()
    def places_are_told(self) -> None:
        for one in self.waiting:
            requests, tokens = self.line.ahead(one)
            assert 0 <= requests < max(1, len(self.waiting) + 1)
            assert 0 <= tokens <= sum(e.tokens for e in self.waiting)

    def teardown(self) -> None:
        for one in self.waiting:
            self.line.left(one)
        for one in self.inside:
            self.line.over(one, None)
        self.line.sweep()
        assert (self.line.waiting, self.line.held) == (0, 0)
        assert not any(band._projects.flows for band in self.line.bands)


TestComings = Comings.TestCase
TestComings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_better_bands_go_first_and_nobody_starves() -> None:
    line = Line()
    for band in (2, 1, 0):
        for _ in range(100):
            line.wait(entry("a", band=band))
    got = []
    for _ in range(100):
        found = line.next(Room(8, 0))
        assert found is not None
        got.append(found.band)
    assert got[:9] == [0] * 9
    assert (got.count(0), got.count(1), got.count(2)) == (81, 9, 10)
    assert PASSES == 9


def test_lower_bands_leave_a_part_of_the_room() -> None:
    line = Line()
    room = {band: next(n for n in range(20) if not line.free(band, Room(10, n))) for band in (0, 1, 2)}
    assert room == {0: 10, 1: 9, 2: 7}
    assert line.free(2, Room(1, 0)), "one always may"


def test_steps_do_not_grow_with_those_who_wait() -> None:
    """Counted, not timed: the heap holds flows, not requests, and old places in it are cleared away."""
    shares: Shares[None] = Shares()
    flows = [shares.put(str(n), 1.0, None) for n in range(50)]
    for flow in flows:
        for _ in range(20):
            shares.waits(flow, 10)
    for n in range(5000):
        shares.corrected(flows[n % 50], (-1) ** n * 3)
        assert len(shares._heap) <= 2 * 50 + 17
