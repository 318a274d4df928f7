"""Identifiers are folded as ASCII, searching is for people: neither asks a locale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.fold import fold, found_in


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        (" INFO@Example.TEST ", "info@example.test"),
        ("ID-TINY", "id-tiny"),
        ("İNFO", "İnfo"),
        ("ınfo", "ınfo"),
        ("STRASSE", "strasse"),
        ("straße", "straße"),
    ],
)
def test_only_ascii_letters_are_lowered(written: str, compared: str) -> None:
    assert fold(written) == compared


@given(st.text())
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert len(fold(text)) <= len(text)


@pytest.mark.parametrize("query", ["istanbul", "İstanbul", "ISTANBUL", "ıstanbul", " stan "])
def test_people_find_what_they_mean(query: str) -> None:
    for name in ("İstanbul", "istanbul", "ISTANBUL", "Takım İstanbul"):
        assert found_in(query, name)
    assert not found_in(query, "Ankara")


@given(st.text(min_size=1))
def test_everything_is_found_by_its_own_name(text: str) -> None:
    assert found_in(text, text)
