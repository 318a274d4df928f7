"""What a new installation has before anybody signed in: an administrator, a project, a key."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db import transaction

from tenancy.actions import keys, people, tree
from tenancy.models import Key, Organisation, Person, Project, Team

NAME = "default"
KEY_NAME = "first"
_ACTOR = "up"


@dataclass(frozen=True, slots=True)
class First:
    """`password` and `key` are there only when they were made now: they are shown once."""

    email: str
    person: str
    """The administrator's public id."""
    project: str
    """The project's public id."""
    password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)


def first(email: str) -> First:
    """Makes what is missing and leaves what is there, whoever the administrator is by now."""
    with transaction.atomic():
        administrator = Person.objects.filter(is_superuser=True).order_by("-is_active", "pk").first()
        password = None
        if administrator is None:
            made = people.create(email=email, administrator=True, must_change_password=False, actor=_ACTOR)
            administrator, password = made.person, made.password
        project = _project()
        secret = None
        if not Key.objects.filter(project=project, name=KEY_NAME).exists():
            secret = keys.create(project=project, name=KEY_NAME, person=administrator, actor=_ACTOR).secret
    return First(administrator.email, administrator.public_id, project.public_id, password, secret)


def _project() -> Project:
    organisation = Organisation.objects.filter(name=NAME).first()
    if organisation is None:
        organisation = tree.create_organisation(name=NAME, actor=_ACTOR)
    team = Team.objects.filter(organisation=organisation, name=NAME).first()
    if team is None:
        team = tree.create_team(organisation=organisation, name=NAME, actor=_ACTOR)
    project = Project.objects.filter(team=team, name=NAME).first()
    if project is None:
        project = tree.create_project(team=team, name=NAME, actor=_ACTOR)
    return project
