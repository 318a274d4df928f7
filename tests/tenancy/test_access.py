"""What a person may see and do: the one place that decides it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser

from llmgw.cluster.errors import Forbidden, NotFound
from tenancy import access
from tenancy.actions import keys, memberships, people, tree
from tenancy.core.roles import Role
from tenancy.models import Key, Person, Project, Team


def paths(person: Person | AnonymousUser) -> set[str]:
    return {p.path for p in access.projects_for(person)}


def test_members_see_their_projects_and_nothing_beside(
    root: Person, ada: Person, olga: Person, project: Project, other: Project
) -> None:
    elsewhere = tree.create_organisation(name="elsewhere", actor="test")
    foreign = tree.create_project(
        team=tree.create_team(organisation=elsewhere, name="t", actor="test"), name="p", actor="test"
    )
    assert paths(ada) == {"acme/ml/train"}
    assert paths(olga) == {"acme/ml/train", "acme/ml/other"}
    assert paths(root) == {"acme/ml/train", "acme/ml/other", "elsewhere/t/p"}
    assert paths(AnonymousUser()) == set()
    assert access.project_for(ada, project.public_id) == project
    for person, hidden in ((ada, other), (olga, foreign)):
        with pytest.raises(NotFound):
            access.project_for(person, hidden.public_id)


def test_the_query_and_the_pure_rule_agree(root: Person, ada: Person, olga: Person, other: Project) -> None:
    for person in (root, ada, olga):
        for project in Project.objects.all():
            seen = access.projects_for(person).filter(pk=project.pk).exists()
            assert seen == (access.role_in(person, project) is not None)
            owned = access.projects_for(person, Role.OWNER).filter(pk=project.pk).exists()
            assert owned == (access.role_in(person, project) is Role.OWNER)


def test_members_manage_own_keys_and_owners_those_of_their_level(
    root: Person, ada: Person, olga: Person, project: Project, other: Project
) -> None:
    made = {
        name: keys.create(project=where, name=name, person=person, actor="test").key
        for name, where, person in (
            ("ada", project, ada),
            ("olga", project, olga),
            ("robot", other, None),
            ("root", other, root),
        )
    }
    seen = {p.email: {k.name for k in access.keys_for(p)} for p in (root, ada, olga)}
    assert seen == {
        "root@example.com": set(made),
        "ada@example.com": {"ada"},
        "olga@example.com": set(made),
    }
    assert access.key_for(ada, made["ada"].public_id) == made["ada"]
    for hidden in ("olga", "robot", "root"):
        with pytest.raises(NotFound):
            access.key_for(ada, made[hidden].public_id)
    assert access.may_create_key(ada, project, ada)
    assert not access.may_create_key(ada, project, olga)
    assert not access.may_create_key(ada, project, None)
    assert not access.may_create_key(ada, other, ada)
    assert access.may_create_key(olga, other, None)
    assert not access.keys_for(AnonymousUser()).exists()


def test_only_active_administrators_with_a_password_of_their_own_administer(root: Person, ada: Person) -> None:
    assert access.may_administer(root)
    assert access.require_administrator(root) == root
    for person in (ada, AnonymousUser(), people.create(email="new@example.com", administrator=True, actor="t").person):
        assert not access.may_administer(person)
        with pytest.raises(Forbidden):
            access.require_administrator(person)


def test_whoever_is_deactivated_sees_nothing(root: Person, ada: Person) -> None:
    people.deactivate(person=ada, actor="test")
    assert paths(ada) == set()
    people.create(email="second@example.com", administrator=True, actor="test")
    people.deactivate(person=root, actor="test")
    assert paths(root) == set()
    assert not access.may_administer(root)


def test_leaving_takes_the_keys_that_are_out_of_reach(
    ada: Person, team: Team, project: Project, other: Project
) -> None:
    memberships.grant(person=ada, level=team, role="member", actor="test")
    for where in (project, other):
        keys.create(project=where, name=where.name, person=ada, actor="test")
    memberships.withdraw(person=ada, level=team, actor="test")
    left = Key.objects.filter(person=ada, revoked_at=None)
    assert [k.name for k in left] == ["train"]
    with pytest.raises(NotFound):
        memberships.withdraw(person=ada, level=team, actor="test")
