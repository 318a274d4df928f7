"""`scaling` of a definition: what is read, what is refused, and that what is shown is read again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.reason import Reason
from catalog.core import scaling
from catalog.core.definition import Definition, Scaling, Window, from_builtins
from catalog.core.fields import Fields

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri")


def read(text: str) -> Scaling | str:
    """The value, or every problem in one text."""
    problems: list[Reason] = []
    found = scaling.read(Fields({"scaling": yaml.safe_load(text)}, "", problems))
    return "\n".join(p.sentence for p in problems) or found


def test_the_whole_of_it() -> None:
    found = read(
        """
        min: 1
        max: 4
        prewarm: 30m
        schedule:
        - {days: [weekdays], from: "08:00", to: "18:00", min: 3, max: 6}
        - {from: "22:00", to: "02:00", min: 1} # past midnight
        """
    )
    assert found == Scaling(
        1,
        4,
        schedule=(Window(WEEKDAYS, 480, 1080, 3, 6), Window((*WEEKDAYS, "sat", "sun"), 1320, 120, 1)),
        prewarm_s=1800.0,
    )
    assert read("{min: 0, max: 1, idle_timeout: 15m, prewarm_weekly: true}") == Scaling(
        0, 1, 900.0, prewarm_weekly=True
    )


def test_times_that_yaml_reads_as_numbers_are_understood() -> None:
    found = read("{min: 1, schedule: [{from: 22:00, to: 06:30, min: 0, max: 0}]}")
    assert isinstance(found, Scaling)
    assert (found.schedule[0].start, found.schedule[0].end) == (1320, 390)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{min: 3, max: 1}", "max (1) is below min (3)"),
        ("{min: 1, idle_timeout: 5m}", "idle_timeout is for a model that loads on demand"),
        ("{min: 1, prewarm_weekly: true}", "prewarm_weekly is for a model that loads on demand"),
        ("{min: 1, prewarm: 5m}", "there is no schedule"),
        ("{min: 1, schedule: [{from: 8, to: '18:00', min: 2, max: 2}]}", "from must be a time of the day like"),
        ("{min: 1, schedule: [{from: '25:00', to: '18:00', min: 1}]}", "from must be a time of the day"),
        ("{min: 1, schedule: [{to: '18:00', min: 1}]}", "from is missing"),
        ("{min: 1, schedule: [{from: '08:00', to: '18:00'}]}", "min, max or both"),
        ("{min: 1, schedule: [{from: '08:00', to: '18:00', min: 2}]}", "min (2) is above the model's max (1)"),
        ("{min: 1, schedule: [{from: '08:00', to: '18:00', min: 2, max: 1}]}", "schedule 1: max (1) is below min (2)"),
        ("{min: 1, schedule: [{days: [noon], from: '08:00', to: '18:00', min: 1}]}", "and not 'noon'"),
        ("{min: 1, schedule: [{day: [mon], from: '08:00', to: '18:00', min: 1}]}", "did you mean days?"),
        ("{min: 1, schedule: daily}", "must be a list"),
    ],
)
def test_refused_in_a_sentence(text: str, said: str) -> None:
    assert said in str(read(text))


@st.composite
def scalings(draw: Any) -> Scaling:
    least = draw(st.integers(0, 3))
    most = draw(st.integers(least, 6))
    windows = []
    for _ in range(draw(st.integers(0, 3))):
        low = draw(st.integers(0, most))
        high = draw(st.none() | st.integers(low, 9))
        days = draw(st.sets(st.sampled_from(scaling.DAYS), min_size=1))
        start, end = draw(st.integers(0, 1439)), draw(st.integers(0, 1440))
        windows.append(Window(tuple(d for d in scaling.DAYS if d in days), start, end, low, high))
    demand = least == 0 < most
    return Scaling(
        least,
        most,
        idle_timeout_s=float(draw(st.integers(1, 9000))) if demand else 900.0,
        schedule=tuple(windows),
        prewarm_s=float(draw(st.integers(0, 9000))) if windows else 0.0,
        prewarm_weekly=draw(st.booleans()) and demand,
    )


@given(scalings())
def test_what_is_shown_is_read_again_and_what_is_stored_too(value: Scaling) -> None:
    assert read(yaml.safe_dump(scaling.written(value))) == value
    stored = msgspec.to_builtins(Definition("m", "starter:tiny", (), scaling=value))
    assert from_builtins(stored).scaling == value


def test_what_was_stored_before_there_were_schedules_reads_on() -> None:
    stored = msgspec.to_builtins(Definition("m", "starter:tiny", ()))
    assert from_builtins({**stored, "scaling": {"min": 2, "max": 2}}).scaling == Scaling(2, 2)
