from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.reason import Reason
from llmgw.keys import key_hash
from tenancy.core.keys import Life, life, secret
from tenancy.core.names import clean, problem
from tenancy.core.passwords import password
from tenancy.core.roles import Held, Place, Role, role_at

NOW = datetime(2026, 11, 29, tzinfo=UTC)
ids = st.sampled_from(["", "a", "b"])


@given(st.binary(min_size=32, max_size=32))
def test_a_key_is_prefixed_hashed_and_not_in_its_own_repr(random: bytes) -> None:
    made = secret(random)
    assert made.text.startswith("llmgw_")
    assert len(made.text) == 49
    assert made.hash == key_hash(made.text)
    assert made.prefix == made.text[:12]
    assert made.text not in repr(made)


def test_a_key_of_too_little_randomness_is_refused() -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        secret(b"short")


@pytest.mark.parametrize(
    ("asked", "most", "lives"), [(None, 90, 90), (None, None, None), (7, 90, 7), (400, None, 400), (90, 90, 90)]
)
def test_a_key_lives_as_asked_within_what_is_allowed(asked: int | None, most: int | None, lives: int | None) -> None:
    assert life(asked, most, NOW) == Life(None if lives is None else NOW + timedelta(days=lives))


@pytest.mark.parametrize(("asked", "most"), [(91, 90), (0, 90), (-1, None), (10**9, None)])
def test_a_life_out_of_bounds_is_refused_with_a_sentence(asked: int, most: int | None) -> None:
    refused = life(asked, most, NOW)
    assert isinstance(refused, Reason)
    assert str(abs(asked)) in refused.sentence


@given(st.binary(min_size=32, max_size=32))
def test_a_password_is_four_groups_without_letters_taken_for_one_another(random: bytes) -> None:
    made = password(random)
    assert [len(g) for g in made.split("-")] == [5, 5, 5, 5]
    assert not set(made) & set("ilo01")


@given(st.tuples(ids, ids), st.tuples(ids, ids), st.sampled_from(Role))
def test_a_role_holds_below_its_level_and_nowhere_else(at: tuple[str, str], place: tuple[str, str], role: Role) -> None:
    held = Held(Place("o", *at), role)
    below = at[0] in ("", place[0]) and at[1] in ("", place[1])
    assert role_at([held], Place("o", *place)) == (role if below else None)
    assert role_at([held], Place("elsewhere", *place)) is None


def test_the_strongest_role_counts() -> None:
    member, owner = Held(Place("o", "t", "p"), Role.MEMBER), Held(Place("o"), Role.OWNER)
    assert role_at([member, owner], Place("o", "t", "p")) is Role.OWNER
    assert role_at([member, owner], Place("o", "t", "q")) is Role.OWNER
    assert role_at([member], Place("o", "t", "q")) is None


@pytest.mark.parametrize("name", ["", "a/b", "x" * 81, "‮gnp.exe", "a\nb", "a\x00b"])
def test_names_that_cannot_be_seen_or_written_are_refused(name: str) -> None:
    assert problem("a team", clean(name)) is not None


@pytest.mark.parametrize("name", ["İstanbul", "a b", '"><img src=x onerror=alert(1)>'.replace("/", ""), "-"])
def test_names_are_for_people(name: str) -> None:
    assert problem("a team", clean(name)) is None
