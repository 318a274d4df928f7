"""Limits, money and periods as values."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.reason import Reason
from llmgw import money
from tenancy.core import periods, terms
from tenancy.core.limits import PERIODS, Limits, Period, from_stored, problems, stored, with_defaults

ZONES = (
    "Europe/Istanbul", "Europe/Berlin", "America/New_York", "America/Havana", "America/Santiago", "Atlantic/Azores",
    "Africa/Cairo", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Pacific/Apia",
    "Africa/Casablanca", "UTC",
)  # fmt: skip
zones = st.sampled_from(ZONES).map(zoneinfo.ZoneInfo)
figures = st.none() | st.integers(0, 10**9)
every = st.builds(Limits, rpm=figures, tpm=figures, concurrent=figures, budget=figures, period=st.sampled_from(PERIODS))


def at(text: str, zone: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()


# -- money


@given(st.integers(0, money.MOST))
def test_an_amount_is_read_as_it_was_written(nano: int) -> None:
    assert money.amount(money.written(nano)) == nano


@pytest.mark.parametrize(
    ("text", "nano"),
    [("250.00", 250 * 10**9), ("250", 250 * 10**9), (" 0.000000001 ", 1), ("0.10000000000", 10**8), ("0", 0)],
)
def test_amounts(text: str, nano: int) -> None:
    assert money.amount(text) == nano


@pytest.mark.parametrize(
    "text", ["NaN", "inf", "-1", "+1", "1e3", "1,000", "", ".", "1.", ".5", "0.0000000001", "9007199.254740992",
             "99999999999999999999999", "\u0661\u0662", "1_000", "1 000", "$5"],
)  # fmt: skip
def test_what_is_no_amount_is_refused_in_a_sentence(text: str) -> None:
    found = money.amount(text)
    assert isinstance(found, Reason)
    assert "\n" not in found.sentence
    assert len(found.sentence) < 160


# -- limits


@given(every)
def test_limits_are_read_as_they_were_stored(limits: Limits) -> None:
    read = from_stored(stored(limits))
    assert (read.rpm, read.tpm, read.concurrent, read.budget) == (
        limits.rpm, limits.tpm, limits.concurrent, limits.budget,
    )  # fmt: skip
    assert limits.budget is None or read.period == limits.period
    assert problems(limits) == ()


@given(every, st.lists(every, max_size=3), figures, figures)
def test_defaults_hold_where_nobody_says_anything(
    own: Limits, tree: list[Limits], rpm: int | None, tpm: int | None
) -> None:
    found = with_defaults(own, rpm, tpm, tree)
    named = any(limits.rpm is not None for limits in (own, *tree))
    assert found.rpm == (own.rpm if named else rpm or None)
    assert (found.concurrent, found.budget, found.period) == (own.concurrent, own.budget, own.period)


def test_every_problem_is_told_at_once() -> None:
    bad: Any = {"rpm": -1, "budget": money.MOST + 1, "period": "year"}
    assert [p.code for p in problems(Limits(**bad))] == ["bad_limit", "bad_limit", "bad_period"]


# -- terms


def test_terms() -> None:
    asked = {"in_cluster": True, "weight": 2, "time_zone": "Europe/Istanbul", "keep": {"hours": 72}, "tools": ["a.*"]}
    said, wrong = terms.cleaned("project", asked)
    assert wrong == ()
    assert said == {**asked, "weight": 2.0, "keep": {"hours": 72.0, "sample": 1.0}}


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("project", "weight", 0), ("project", "weight", float("nan")), ("project", "time_zone", "Mars/Olympus"),
        ("project", "time_zone", "../../etc/passwd"), ("project", "keep", {"hours": 0}),
        ("project", "keep", {"hours": 1, "sample": 1.5}), ("project", "reuse", {"ttl_s": 0}),
        ("project", "reuse", {"ttl": 5}), ("project", "reuse", {"ttl_s": 60, "similar": 0.1}),
        ("project", "reuse", "1h"), ("team", "weight", 1), ("team", "key_ttl_days", 0), ("team", "key_ttl_days", True),
        ("organisation", "tools", "jira.*"), ("organisation", "tools", ["a b"]), ("key", "band", "urgent"),
        ("key", "no_store", True), ("team", "in_cluster", "yes"),
    ],
)  # fmt: skip
def test_what_a_level_may_not_say(kind: str, name: str, value: Any) -> None:
    said, wrong = terms.cleaned(kind, {name: value})
    assert said == {}
    assert len(wrong) == 1


# -- periods


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23), ("Europe/Berlin", "2026-10-25", 25), ("Europe/Berlin", "2026-11-29", 24),
        ("America/New_York", "2026-03-08", 23), ("America/New_York", "2026-11-01", 25),
        ("America/Santiago", "2026-09-06", 23),  # begins at 01:00: midnight is missing
        ("America/Havana", "2026-11-01", 25),  # midnight comes twice
        ("Australia/Lord_Howe", "2026-10-04", 23.5), ("Pacific/Kiritimati", "2026-11-29", 24),
    ],
)  # fmt: skip
def test_a_day_is_as_long_as_the_clocks_make_it(zone: str, day: str, hours: float) -> None:
    noon = at(f"{day}T12:00", zone)
    found = periods.running("day", zoneinfo.ZoneInfo(zone), noon)
    before = (datetime.fromisoformat(day) - timedelta(days=1)).date().isoformat()
    began = periods.running("day", zoneinfo.ZoneInfo(zone), at(f"{before}T12:00", zone)).until
    assert found.name == day
    assert found.until - began == hours * 3600


def test_the_same_moment_is_three_days_around_the_world() -> None:
    now = datetime(2026, 11, 30, 10, 30, tzinfo=UTC).timestamp()
    names = {
        z: periods.running("day", zoneinfo.ZoneInfo(z), now).name for z in ("Pacific/Kiritimati", "Pacific/Pago_Pago")
    }
    assert names == {"Pacific/Kiritimati": "2026-12-01", "Pacific/Pago_Pago": "2026-11-29"}
    months = [periods.running("month", zoneinfo.ZoneInfo(z), now).name for z in names]
    assert months == ["2026-12", "2026-11"]


def test_weeks_are_iso_weeks() -> None:
    found = periods.running("week", UTC, datetime(2027, 1, 2, tzinfo=UTC).timestamp())
    since, until = datetime(2026, 12, 28, tzinfo=UTC), datetime(2027, 1, 4, tzinfo=UTC)
    assert found == periods.Running("2026-W53", until.timestamp(), since.timestamp())
    assert periods.running("total", UTC, 0.0) == periods.Running("total", 0.0)


@given(zones, st.sampled_from([p for p in PERIODS if p != "total"]), st.integers(1_600_000_000, 2_100_000_000))
def test_a_period_holds_until_it_ends_and_another_follows_at_once(zone: Any, period: Period, now: int) -> None:
    found = periods.running(period, zone, now)
    longest = {"day": 1, "week": 7, "month": 31}[period] * 86_400 + 3600
    assert now < found.until <= now + longest
    assert periods.running(period, zone, found.until - 1) == found
    assert periods.running(period, zone, found.until).name > found.name
