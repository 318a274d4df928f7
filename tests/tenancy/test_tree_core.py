"""A level narrows what is above it, and never widens it."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from tenancy.core.roles import Held, Place, Role, may_limit
from tenancy.core.tree import allows, narrow_allow, narrow_days, narrow_flag, narrow_tools, sees

names = st.text(alphabet=string.ascii_letters + "-", min_size=1, max_size=4)
lists = st.none() | st.lists(names, max_size=6)


@given(st.lists(lists, max_size=4), lists)
def test_a_further_level_only_takes_names_away(above: list[list[str] | None], level: list[str] | None) -> None:
    before, after = narrow_allow(*above), narrow_allow(*above, level)
    if before is not None:
        assert after is not None
        assert set(after) <= set(before)
    if level is not None:
        assert after is not None
        assert all(allows(level, name) for name in after)


@given(st.lists(lists, max_size=4), names)
def test_a_model_is_allowed_where_every_level_allows_it(levels: list[list[str] | None], model: str) -> None:
    assert allows(narrow_allow(*levels), model) == all(allows(level, model) for level in levels)


def test_nothing_said_is_everything_and_an_empty_list_is_nothing() -> None:
    assert narrow_allow(None, None) is None
    assert narrow_allow(None, ["a"], []) == ()
    assert narrow_allow(["A", "b"], ["a"]) == ("a",)
    assert not allows((), "a")


patterns = st.none() | st.lists(st.sampled_from(["jira.*", "db.query", "db.*", "*", "hr.pay"]), max_size=3)
tools = st.sampled_from(["jira.create", "db.query", "db.drop", "hr.pay"])


@given(st.lists(st.booleans(), max_size=4), st.booleans())
def test_what_a_level_forbids_stays_forbidden_below(above: list[bool], level: bool) -> None:
    assert narrow_flag(*above, level) >= narrow_flag(*above)


@given(st.lists(st.none() | st.integers(1, 900), max_size=4), st.none() | st.integers(1, 900))
def test_a_further_level_only_shortens_a_key_s_life(above: list[int | None], level: int | None) -> None:
    before, after = narrow_days(*above), narrow_days(*above, level)
    if before is not None:
        assert after is not None
        assert after <= before
    if level is not None:
        assert after is not None
        assert after <= level


@given(st.lists(patterns, max_size=4), patterns.filter(lambda p: p is not None), tools)
def test_a_further_level_only_takes_tools_away(above: list[list[str] | None], level: list[str], tool: str) -> None:
    before = narrow_tools(*above)
    if before and sees(narrow_tools(*above, level), tool):
        assert sees(before, tool)


def test_a_tool_is_granted_and_never_assumed() -> None:
    assert not sees(narrow_tools(None, None), "jira.create")
    assert sees(narrow_tools(None, ["jira.*"]), "jira.create")
    assert not sees(narrow_tools(["hr.*"], ["jira.*"]), "jira.create")
    assert not sees(narrow_tools(["*"], []), "jira.create")


def test_limits_are_set_from_above() -> None:
    """An owner of a team sets its projects' limits, and not the team's: nobody lifts his own."""
    of_team = [Held(Place("o", "t"), Role.OWNER)]
    assert may_limit(of_team, Place("o", "t", "p"))
    assert not may_limit(of_team, Place("o", "t"))
    assert not may_limit(of_team, Place("o", "u", "q"))
    assert not may_limit([Held(Place("o"), Role.OWNER)], Place("o"))
    assert may_limit([Held(Place("o"), Role.OWNER)], Place("o", "t"))
    assert not may_limit([Held(Place("o"), Role.MEMBER)], Place("o", "t"))
