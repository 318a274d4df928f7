"""Windows by the clock on the wall: in every zone, past midnight, on days of 23 and of 25 hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.definition import Scaling, Window
from catalog.core.scaling import DAYS
from fleet.core.schedule import bounds, openings, week

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [BERLIN, ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("America/Havana"), UTC]
"""One that turns its clock by half an hour, one that does so at midnight."""
WORK = Scaling(1, 4, schedule=(Window(DAYS[:5], 480, 1080, 3, 6), Window(DAYS, 1320, 120, 1)), prewarm_s=1800.0)


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


@pytest.mark.parametrize(
    ("when", "least", "most"),
    [
        ("2026-03-02 07:29", 1, 4),  # a monday
        ("2026-03-02 07:30", 3, 6),  # ahead of its window
        ("2026-03-02 17:59", 3, 6),
        ("2026-03-02 18:00", 1, 4),
        ("2026-03-07 12:00", 1, 4),  # a saturday
    ],
)
def test_the_first_window_that_holds_wins(when: str, least: int, most: int) -> None:
    found = bounds(WORK, at(when), BERLIN)
    assert (found.min, found.max) == (least, most)


def test_past_midnight_it_is_still_the_day_on_which_it_opened() -> None:
    night = Scaling(0, 2, schedule=(Window(("mon",), 1320, 120, 1),))
    assert bounds(night, at("2026-03-02 23:00"), BERLIN).min == 1
    assert bounds(night, at("2026-03-03 01:59"), BERLIN).min == 1
    assert bounds(night, at("2026-03-03 02:00"), BERLIN).min == 0
    assert bounds(night, at("2026-03-02 01:00"), BERLIN).min == 0


def test_prewarming_lowers_nothing() -> None:
    quiet = Scaling(3, 3, schedule=(Window(DAYS, 480, 1080, 1, 1),), prewarm_s=3600.0)
    assert bounds(quiet, at("2026-03-02 07:30"), BERLIN).min == 3
    assert bounds(quiet, at("2026-03-02 08:00"), BERLIN).min == 1


def test_a_day_of_25_hours_keeps_its_window_through_both_hours() -> None:
    scaling = Scaling(0, 1, schedule=(Window(DAYS, 120, 150, 1),))  # 02:00 to 02:30, which comes twice
    for fold in (0, 1):
        assert bounds(scaling, at("2026-10-25 02:15", fold=fold), BERLIN).min == 1
    assert bounds(scaling, at("2026-10-25 02:45"), BERLIN).min == 1
    assert bounds(scaling, at("2026-10-25 02:45", fold=1), BERLIN).min == 0


def test_a_day_of_23_hours_opens_what_it_leaves_out_where_the_clock_goes_on() -> None:
    scaling = Scaling(0, 1, schedule=(Window(DAYS, 150, 240, 1),))  # 02:30 is never shown
    assert bounds(scaling, at("2026-03-29 01:59"), BERLIN).min == 0
    assert bounds(scaling, at("2026-03-29 03:00"), BERLIN).min == 1
    never = Scaling(0, 1, schedule=(Window(DAYS, 135, 165, 1),))
    start = at("2026-03-29 00:00")
    assert not any(bounds(never, start + 60 * n, BERLIN).min for n in range(23 * 60))


days = st.sets(st.sampled_from(DAYS), min_size=1).map(lambda found: tuple(d for d in DAYS if d in found))
windows = st.builds(Window, days, st.integers(0, 1439), st.integers(0, 1440), st.integers(1, 5), st.just(9))
moments = st.datetimes(datetime(2025, 1, 1), datetime(2027, 12, 31)).map(lambda d: d.replace(tzinfo=UTC).timestamp())


@settings(max_examples=150, deadline=None)
@given(windows, moments, st.sampled_from(ZONES))
def test_away_from_changes_of_the_clock_it_is_what_the_wall_says(window: Window, now: float, zone: ZoneInfo) -> None:
    local = datetime.fromtimestamp(now, zone)
    around = {datetime.fromtimestamp(now + 3600 * n, zone).utcoffset() for n in range(-50, 51, 2)}
    if len(around) > 1:
        return
    minute, today, yesterday = local.hour * 60 + local.minute, DAYS[local.weekday()], DAYS[local.weekday() - 1]
    if window.end > window.start:
        holds = today in window.days and window.start <= minute < window.end
    else:
        holds = (today in window.days and minute >= window.start) or (yesterday in window.days and minute < window.end)
    assert (bounds(Scaling(0, 0, schedule=(window,)), now, zone).min > 0) == holds


@settings(max_examples=60, deadline=None)
@given(windows, moments, st.sampled_from(ZONES), st.integers(1, 7200))
def test_what_opens_is_open_and_was_warmed_before(window: Window, now: float, zone: ZoneInfo, prewarm: int) -> None:
    scaling = Scaling(0, 0, schedule=(window,), prewarm_s=float(prewarm))
    found = list(openings(scaling, now, now + 8 * 86400, zone))
    assert all(now < o.opens <= now + 8 * 86400 and o.opens < o.closes for o in found)
    for opening in found:
        assert bounds(scaling, opening.opens, zone).min == window.min
        assert bounds(scaling, opening.opens - prewarm, zone).min == window.min
        assert bounds(scaling, opening.closes - 1, zone).min == window.min


@settings(max_examples=40, deadline=None)
@given(st.lists(windows, min_size=1, max_size=3), moments, st.sampled_from(ZONES))
def test_the_same_moment_gives_the_same_and_a_week_is_full(found: list[Window], now: float, zone: ZoneInfo) -> None:
    scaling = Scaling(1, 2, schedule=tuple(found))
    assert bounds(scaling, now, zone) == bounds(scaling, now, zone)
    shown = week(scaling, now, zone)
    assert [len(day) for day in shown] == [48] * 7
    if zone is UTC:
        monday = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        monday -= timedelta(days=monday.weekday())
        assert shown[2][17] == bounds(scaling, (monday + timedelta(days=2, minutes=17 * 30)).timestamp(), UTC)
