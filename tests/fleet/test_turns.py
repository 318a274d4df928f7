"""Orders of requests on one card, through the planner: few loads, and nobody waits for ever."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.turns import Arrival, fewest, order, play
from fleet.core.demand import expected, hours_before, wants
from fleet.core.world import Demand
from llmgw.cluster.core.sections import FleetSettings

EXAMPLES = settings(max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "25")), deadline=None)


@pytest.mark.parametrize("letters", ["ABAAC", "ABABAB", "ABCABC", "AABBAAB", "CABAAC"])
def test_orders_that_thrash_elsewhere_load_each_model_once(letters: str) -> None:
    found = play(order(letters, 1.0))
    assert len(found.waits) == len(letters)
    assert len(found.loads) == len(set(letters)), found.loads


def test_whoever_comes_while_a_model_is_loaded_is_served_in_its_turn() -> None:
    assert play(order("ABAAC", 10)).loads == ["A", "B", "C"]


def test_what_is_asked_once_a_minute_is_loaded_once_more_than_by_a_prophet() -> None:
    arrivals = order("ABAAC", 60)
    assert len(play(arrivals).loads) <= fewest(arrivals) + 1


@EXAMPLES
@given(
    letters=st.text("ABCD", min_size=1, max_size=8),
    gaps=st.lists(st.floats(0, 5), min_size=8, max_size=8),
    resident=st.sampled_from(["", "A", "B"]),
    load_s=st.sampled_from([2.0, 20.0, 60.0]),
)
def test_a_burst_is_loaded_at_most_once_more_than_the_best_possible(
    letters: str, gaps: list[float], resident: str, load_s: float
) -> None:
    """All come within the first turn: the best planner there is would know which, and load each model once."""
    at, arrivals = 0.0, list[Arrival]()
    for letter, gap in zip(letters, gaps, strict=False):
        arrivals.append((at, letter))
        at += min(gap, (load_s + 2) / 8)
    found = play(arrivals, load_s=load_s, resident=resident)
    assert len(found.waits) == len(letters)
    assert len(found.loads) <= fewest(arrivals, resident) + 1, found.loads


@EXAMPLES
@given(
    st.lists(st.tuples(st.floats(0, 600), st.sampled_from("ABC")), min_size=1, max_size=60),
    st.sampled_from([1.0, 10.0, 40.0]),
)
def test_nobody_waits_beyond_the_turns_of_those_before(arrivals: list[Arrival], load_s: float) -> None:
    """At most `swap_max_wait_s` until the first model's turn is over, and a turn for each of the others."""
    limits, answer_s = FleetSettings(), 3.0
    found = play(arrivals, load_s=load_s, answer_s=answer_s)
    turn_s = 2 * max(load_s, 5.0) + answer_s + limits.swap_idle_s + 6
    assert found.longest_s <= limits.swap_max_wait_s + 2 * turn_s + load_s, found.loads


def test_a_model_in_constant_use_gives_its_card_up_when_the_other_has_waited() -> None:
    found = play(sorted([*order("A" * 200, 2), (30.0, "B")]), load_s=10)
    assert found.loads == ["A", "B", "A"]
    assert 120 <= found.longest_s <= 150


def test_settings_hold() -> None:
    quick = FleetSettings(swap_min_residence_s=0, swap_idle_s=0, swap_max_wait_s=30)
    assert play(order("AB", 5), load_s=2, settings=quick).longest_s < play(order("AB", 5), load_s=2).longest_s
    slow = FleetSettings(swap_min_residence_s=100)
    assert play(order("AB", 5), load_s=2, settings=slow).longest_s > 90


# -- who asks


def test_what_runs_stays_for_a_while_and_what_does_not_starts_only_for_who_waits() -> None:
    asked = Demand(last_asked=900.0)
    assert wants(asked, 200, 1000)
    assert not wants(asked, 200, 1000, running=False)
    assert not wants(asked, 50, 1000)
    assert wants(Demand(waiting=1), 50, 1000, running=False) == "a request waits for it"
    assert wants(Demand(waiting_since=990.0), 50, 1000, running=False)
    assert wants(Demand(in_flight=1), 50, 1000)
    assert not wants(Demand(in_flight=1), 50, 1000, running=False), "it is answered where it is"
    assert wants(Demand(), 50, 1000, heard=False), "unknown is not idle"
    assert not wants(Demand(), 50, 1000, running=False, heard=False)


# -- the week


def _hour(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def test_an_hour_that_was_used_in_two_of_the_last_weeks_is_expected_again() -> None:
    used = [
        ("chat", _hour("2026-11-02T09:00")),
        ("chat", _hour("2026-11-16T09:00")),
        ("once", _hour("2026-11-16T09:00")),
    ]
    assert expected(used, _hour("2026-11-23T09:30"), UTC) == {"chat"}
    assert expected(used, _hour("2026-11-23T08:51"), UTC) == {"chat"}, "some minutes ahead"
    assert expected(used, _hour("2026-11-23T08:49"), UTC) == frozenset()
    assert expected(used, _hour("2026-11-23T10:00"), UTC) == frozenset()
    assert expected(used, _hour("2026-11-24T09:30"), UTC) == frozenset(), "another day"
    assert expected(used, _hour("2026-12-21T09:30"), UTC) == frozenset(), "long ago"


def test_the_hour_is_that_of_the_clock_on_the_wall() -> None:
    zone = ZoneInfo("Europe/Berlin")
    used = [("chat", _hour("2026-10-12T09:00", "Europe/Berlin")), ("chat", _hour("2026-10-19T09:00", "Europe/Berlin"))]
    assert expected(used, _hour("2026-10-26T09:30", "Europe/Berlin"), zone) == {"chat"}, (
        "the clock went back on the 25th"
    )
    assert len(hours_before(_hour("2026-10-26T09:30", "Europe/Berlin"), zone)) == 4
