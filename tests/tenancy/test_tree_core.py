"""A level narrows what is above it, and never widens it."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from tenancy.core.tree import allows, narrow_allow, narrow_limits

names = st.text(alphabet=string.ascii_letters + "-", min_size=1, max_size=4)
lists = st.none() | st.lists(names, max_size=6)
limits = st.dictionaries(st.sampled_from(["requests_per_minute", "tokens_per_minute"]), st.integers(0, 100))


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


@given(st.lists(limits, max_size=4), limits)
def test_a_further_level_only_lowers_limits(above: list[dict[str, int]], level: dict[str, int]) -> None:
    before, after = narrow_limits(*above), narrow_limits(*above, level)
    assert set(after) == set(before) | set(level)
    for name, figure in after.items():
        assert figure <= before.get(name, figure)
        assert figure <= level.get(name, figure)


def test_nothing_said_is_everything_and_an_empty_list_is_nothing() -> None:
    assert narrow_allow(None, None) is None
    assert narrow_allow(None, ["a"], []) == ()
    assert narrow_allow(["A", "b"], ["a"]) == ("a",)
    assert not allows((), "a")
