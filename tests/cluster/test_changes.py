"""What is built from a change is built once a commit, after it, and from all of it."""

from __future__ import annotations

import pytest
from django.db import transaction

from llmgw.cluster import changes
from llmgw.cluster.changes import announce, listen, versions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The version of `one` that a listener to two names saw each time that it ran."""
    monkeypatch.setattr(changes, "_listeners", {})
    found: list[int] = []

    def listener() -> None:
        found.append(versions().get("one", 0))

    listen("one", listener)
    listen("two", listener)
    return found


def test_a_listener_runs_once_a_commit_however_much_was_announced(heard: list[int]) -> None:
    with transaction.atomic():
        for _ in range(5):
            with transaction.atomic():
                announce("one", "two")
        assert heard == []
    assert heard == [5]
    announce("two")
    announce("one")
    assert heard == [5, 5, 6]


def test_what_was_rolled_back_hides_nothing(heard: list[int]) -> None:
    with transaction.atomic():
        inner = transaction.savepoint()
        announce("one")
        transaction.savepoint_rollback(inner)
        announce("two")
    assert heard == [0]


def test_what_a_listener_changes_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_listeners", {})
    heard: list[str] = []
    listen("one", lambda: (announce("two"), heard.append("one"))[-1])
    listen("two", lambda: heard.append("two"))
    with transaction.atomic():
        announce("one")
    assert heard == ["two", "one"]
