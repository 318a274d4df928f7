"""Changes of the tree, people and keys: each whole, written down, and told to whoever publishes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from llmgw.cluster import changes
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import Conflict, Invalid, Refusal
from llmgw.cluster.models import AuditEntry, Change
from llmgw.keys import key_hash
from tenancy import bootstrap
from tenancy.actions import keys, memberships, people, tree
from tenancy.models import Key, Membership, Organisation, Person, Project, Team


def version() -> int:
    return Change.objects.get(name="tenancy").version


def test_a_key_is_kept_only_as_its_hash(ada: Person, project: Project) -> None:
    made = keys.create(project=project, name="laptop", person=ada, actor="test")
    stored = Key.objects.get()
    assert stored.hash == key_hash(made.secret)
    assert stored.prefix == made.secret[:12]
    assert made.secret not in repr(made)
    everything = str([list(m.objects.values()) for m in (Key, AuditEntry)])
    assert made.secret not in everything
    assert stored.expires_at is not None
    assert timedelta(days=89) < stored.expires_at - timezone.now() <= timedelta(days=90)


def test_how_long_a_key_lives_is_the_settings_to_say(project: Project) -> None:
    cluster_settings.put(path="keys.max_ttl_days", value=7, actor="test")
    with pytest.raises(Invalid, match="7 days at most"):
        keys.create(project=project, name="laptop", days=8, actor="test")
    assert keys.create(project=project, name="laptop", days=7, actor="test").key.lives(timezone.now())


def test_every_problem_of_a_key_is_named(ada: Person, project: Project) -> None:
    with pytest.raises(Invalid) as refused:
        keys.create(project=project, name="", days=0, person=ada, scope="admin", actor="test")
    assert [p.code for p in refused.value.problems] == ["bad_name", "bad_key_life", "not_an_administrator"]
    assert not Key.objects.exists()


def test_revoking_is_told_at_once_and_once(
    ada: Person, project: Project, django_capture_on_commit_callbacks: Any
) -> None:
    heard: list[int] = []
    changes.listen("tenancy", lambda: heard.append(1))
    key = keys.create(project=project, name="laptop", person=ada, actor="test").key
    before = version()
    with django_capture_on_commit_callbacks(execute=True):
        keys.revoke(key=key, actor="test")
        keys.revoke(key=key, actor="test")
    assert heard == [1]
    assert version() == before + 1
    assert not key.lives(timezone.now())
    assert AuditEntry.objects.filter(action="key.revoke", subject=key.public_id).count() == 1


def test_a_change_that_fails_leaves_no_trace(organisation: Organisation) -> None:
    before = (version(), AuditEntry.objects.count())

    def failing() -> None:
        with transaction.atomic():
            tree.create_team(organisation=organisation, name="t", actor="test")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    with pytest.raises(Conflict):
        tree.create_organisation(name="acme", actor="test")
    assert (version(), AuditEntry.objects.count()) == before


def test_deactivating_ends_keys_for_good(root: Person, ada: Person, project: Project) -> None:
    key = keys.create(project=project, name="laptop", person=ada, actor="test").key
    people.deactivate(person=ada, actor="test")
    people.activate(person=ada, actor="test")
    key.refresh_from_db()
    assert key.revoked_at is not None
    people.deactivate(person=ada, actor="test")
    with pytest.raises(Invalid, match="deactivated"):
        keys.create(project=project, name="again", person=ada, actor="test")


def test_the_last_administrator_can_neither_go_nor_step_down(root: Person) -> None:
    for change in (
        lambda: people.deactivate(person=root, actor="test"),
        lambda: people.set_administrator(person=root, administrator=False, actor="test"),
    ):
        with pytest.raises(Conflict, match="only administrator"):
            change()
    second = people.create(email="second@example.com", administrator=True, actor="test").person
    people.deactivate(person=second, actor="test")
    with pytest.raises(Conflict):
        people.deactivate(person=root, actor="test")


@pytest.mark.parametrize("email", ["", "ada", "a@b", "a b@example.com", "a@example.com\n"])
def test_what_is_no_address_gets_no_account(db: None, email: str) -> None:
    if email.endswith("\n"):  # blanks around it are taken off
        assert people.create(email=email, actor="test").person.email == "a@example.com"
        return
    with pytest.raises(Invalid):
        people.create(email=email, actor="test")


def test_one_account_an_address_however_it_is_written(db: None) -> None:
    assert people.create(email="Info@Example.TEST", actor="test").person.email == "info@example.test"
    with pytest.raises(Conflict):
        people.create(email="INFO@example.test", actor="test")
    assert Person.objects.count() == 1


def test_a_role_is_held_once_a_level(ada: Person, project: Project) -> None:
    memberships.grant(person=ada, level=project, role="owner", actor="test")
    assert Membership.objects.get(person=ada).role == "owner"
    with pytest.raises(Invalid):
        memberships.grant(person=ada, level=project, role="ADMİN", actor="test")


def test_a_level_with_something_below_it_stays(organisation: Organisation, team: Team, project: Project) -> None:
    for level in (organisation, team):
        with pytest.raises(Conflict, match="still has"):
            tree.delete(level=level, actor="test")
    for below in (project, team, organisation):
        tree.delete(level=below, actor="test")
    assert not Organisation.objects.exists()


def test_the_first_things_are_made_once_and_shown_once(db: None) -> None:
    first = bootstrap.first("Root@Example.com")
    assert first.email == "root@example.com"
    assert first.password is not None
    assert first.key is not None
    assert first.key not in repr(first)
    assert first.password not in repr(first)
    person = Person.objects.get()
    assert person.check_password(first.password)
    assert person.is_superuser
    assert not person.must_change_password
    assert Key.objects.get().hash == key_hash(first.key)
    again = bootstrap.first("somebody@example.com")
    assert (again.password, again.key) == (None, None)
    assert (again.email, again.person, again.project) == (first.email, first.person, first.project)
    assert (Person.objects.count(), Project.objects.count(), Key.objects.count()) == (1, 1, 1)


def test_refusals_name_the_way_on(db: None) -> None:
    people.create(email="ada@example.com", actor="test")
    with pytest.raises(Refusal) as refused:
        people.create(email="ada@example.com", actor="test")
    assert refused.value.reason.command == "llmgw user list"
