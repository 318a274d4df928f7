from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from tenancy import bootstrap
from tenancy.actions import keys, memberships, people
from tenancy.bootstrap import First
from tenancy.models import Key, Person, Project


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    """Hashing is slow on purpose, and not what is tested here."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def first(db: None) -> First:
    return bootstrap.first("root@example.com")


@pytest.fixture
def root(first: First) -> Person:
    return Person.objects.get(email=first.email)


@pytest.fixture
def project(first: First) -> Project:
    return Project.objects.select_related("team__organisation").get(public_id=first.project)


@pytest.fixture
def member(project: Project) -> Person:
    person = people.create(email="member@example.com", must_change_password=False, actor="test").person
    memberships.grant(person=person, level=project, role="owner", actor="test")
    return person


@pytest.fixture
def admin_key(root: Person, project: Project) -> keys.NewKey:
    return keys.create(project=project, name="admin", person=root, scope=Key.Scope.ADMIN, actor="test")


@pytest.fixture
def api(admin_key: keys.NewKey) -> APIClient:
    """A client that calls as a program does: with a key of scope admin."""
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {admin_key.secret}")
    return client
