from __future__ import annotations

from typing import Any

import pytest

from tenancy.actions import memberships, people, tree
from tenancy.models import Organisation, Person, Project, Team

ACTOR = "test"


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    """Hashing is slow on purpose, and not what is tested here."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def organisation(db: None) -> Organisation:
    return tree.create_organisation(name="acme", actor=ACTOR)


@pytest.fixture
def team(organisation: Organisation) -> Team:
    return tree.create_team(organisation=organisation, name="ml", actor=ACTOR)


@pytest.fixture
def project(team: Team) -> Project:
    return tree.create_project(team=team, name="train", actor=ACTOR)


@pytest.fixture
def other(team: Team) -> Project:
    return tree.create_project(team=team, name="other", actor=ACTOR)


@pytest.fixture
def root(db: None) -> Person:
    return people.create(email="root@example.com", administrator=True, must_change_password=False, actor=ACTOR).person


@pytest.fixture
def ada(project: Project) -> Person:
    """A member of the project `acme/ml/train` alone."""
    person = people.create(email="ada@example.com", must_change_password=False, actor=ACTOR).person
    memberships.grant(person=person, level=project, role="member", actor=ACTOR)
    return person


@pytest.fixture
def olga(team: Team) -> Person:
    """An owner of the team `acme/ml`."""
    person = people.create(email="olga@example.com", must_change_password=False, actor=ACTOR).person
    memberships.grant(person=person, level=team, role="owner", actor=ACTOR)
    return person
