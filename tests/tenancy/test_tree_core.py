"""A level narrows what is above it, and never widens it."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from tenancy.core.tree import allows, narrow_allow

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
