"""Scaling by load: simulated over hours, with starts that take a minute; it settles, overshoots nothing, comes back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.core.autoscale import Load, Spell, step, unheard
from llmgw.cluster.core.sections import FleetSettings

SETTINGS = FleetSettings()
PLACES = 4
OVERCOMMIT = 1.25
LOOK_S = 2.0


@dataclass
class Simulated:
    """A model whose replicas have `PLACES` places each, take `start_s` to come, and are gone at once."""

    start_s: float = 60.0
    room: int = 99
    now: float = 1_000_000.0
    ready: int = 1
    coming: list[float] = field(default_factory=list)
    spell: Spell | None = None
    numbers: list[tuple[float, int, str]] = field(default_factory=list)

    def run(self, seconds: float, offered: Callable[[float], float], least: int = 1, most: int = 8) -> None:
        """`offered`: requests that want to be worked on at each moment."""
        until = self.now + seconds
        while self.now < until:
            self.ready += sum(at <= self.now for at in self.coming)
            self.coming = [at for at in self.coming if at > self.now]
            pending = max((self.spell.target if self.spell else 0) - self.ready - len(self.coming), 0)
            want, room = round(offered(self.now)), int(self.ready * PLACES * OVERCOMMIT)
            seen = Load(
                self.ready, len(self.coming) + pending, self.ready * PLACES, min(want, room), max(want - room, 0)
            )
            self.spell, change = step(self.spell, seen, least, most, SETTINGS, self.now)
            if change is not None:
                assert abs(change.after - change.before) == 1
                self.numbers.append((self.now, change.after, change.reason.sentence))
            target = self.spell.target
            while self.ready + len(self.coming) < min(target, self.room):
                self.coming.append(self.now + self.start_s)
            self.ready = min(self.ready, target)
            self.now += LOOK_S

    @property
    def steps(self) -> list[int]:
        return [number for _, number, _ in self.numbers]


def test_a_busy_model_grows_one_by_one_until_it_carries_the_load_and_stays() -> None:
    world = Simulated()
    world.run(3600, lambda _: 14)
    assert world.steps == [2, 3, 4]
    times = [at for at, _, _ in world.numbers]
    assert min(b - a for a, b in itertools.pairwise(times)) >= world.start_s, "the next one before one came"
    assert "requests wait, and its 4 places have been taken for 10 s" in world.numbers[0][2]


def test_after_a_quiet_spell_it_shrinks_to_its_least() -> None:
    world = Simulated(ready=4)
    world.run(100, lambda _: 14)
    world.run(3600, lambda _: 1)
    assert world.steps == [3, 2, 1]
    times = [at for at, _, _ in world.numbers]
    assert min(b - a for a, b in itertools.pairwise(times)) >= SETTINGS.scale_down_after_s


def test_never_beyond_its_bounds_which_may_move() -> None:
    world = Simulated()
    world.run(1200, lambda _: 99, most=2)
    assert world.steps == [2]
    world.run(60, lambda _: 99, least=3, most=3)
    assert world.spell is not None
    assert world.spell.target == 3
    world.run(60, lambda _: 99, least=1, most=1)
    assert world.spell.target == 1


def test_where_there_is_no_room_it_asks_for_one_and_lets_go_when_it_is_quiet() -> None:
    world = Simulated(room=1)
    world.run(1800, lambda _: 30)
    assert world.steps == [2]
    world.run(400, lambda _: 1)
    assert world.steps == [2, 1]


def test_a_moment_s_rush_starts_nothing() -> None:
    world = Simulated()
    world.run(3600, lambda now: 12 if now % 120 < 8 else 1)
    assert world.steps == []


def test_bursts_with_blinks_between_them_are_busy() -> None:
    world = Simulated()
    world.run(120, lambda now: 1 if now % 6 < 2 else 12)
    assert world.steps[:1] == [2]


def test_who_plans_next_takes_what_runs_and_who_hears_nothing_moves_nothing() -> None:
    seen = Load(ready=3, coming=1, places=12, in_flight=2, waiting=0)
    spell, change = step(None, seen, 1, 8, SETTINGS, 100.0)
    assert (spell.target, change) == (4, None)
    assert step(spell, seen, 1, 8, SETTINGS, 5000.0)[1] is None, "a memory of long ago counts for nothing"
    silent = unheard(Spell(3, 0.0, busy_since=0.0, quiet_since=0.0), 100.0)
    assert silent == Spell(3, 100.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(1, 8), st.sampled_from([2.0, 60.0, 600.0]))
def test_a_steady_load_settles_and_never_swings(load: int, began: int, start_s: float) -> None:
    """All steps go one way, and in the last hour there is none."""
    world = Simulated(ready=began, start_s=start_s)
    world.run(3 * 3600, lambda _: load)
    assert world.steps == sorted(world.steps) or world.steps == sorted(world.steps, reverse=True)
    before = len(world.steps)
    world.run(3600, lambda _: load)
    if start_s < 600:
        assert len(world.steps) == before


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 20), st.integers(1, 12), st.integers(20, 900))
def test_a_load_that_swings_faster_than_a_quiet_spell_keeps_its_replicas(high: int, low: int, period: int) -> None:
    """Between two rushes nothing is given back that the next one needs: at most one step down in all."""
    world = Simulated()
    half = min(period, SETTINGS.scale_down_after_s) / 2
    world.run(4 * 3600, lambda now: high if now % (2 * half) < half else min(low, high))
    downs = sum(b < a for a, b in zip(world.steps, world.steps[1:], strict=False))
    assert downs <= 1, world.steps


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_taking_one_back_never_makes_it_busy(share: float) -> None:
    for ready in range(2, 9):
        for in_flight in range(ready * PLACES + 1):
            seen = Load(ready, 0, ready * PLACES, in_flight, 0)
            if seen.quiet(share, ready):
                assert not Load(ready - 1, 0, (ready - 1) * PLACES, in_flight, 0).busy
