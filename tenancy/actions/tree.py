"""Changes of the tree: organisations, teams, projects."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import IntegrityError, transaction

from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Conflict, Invalid
from tenancy.core import names
from tenancy.core.tree import clean_allow
from tenancy.models import Level, Organisation, Project, Team

L = TypeVar("L", bound=Level)


def create_organisation(*, name: str, actor: str, allow: list[str] | None = None) -> Organisation:
    """A new organisation; `Invalid` for a bad name, `Conflict` where there is one of that name."""
    return _create(Organisation, "organisation", name, allow, actor)


def create_team(*, organisation: Organisation, name: str, actor: str, allow: list[str] | None = None) -> Team:
    return _create(Team, "team", name, allow, actor, organisation=organisation)


def create_project(*, team: Team, name: str, actor: str, allow: list[str] | None = None) -> Project:
    return _create(Project, "project", name, allow, actor, team=team)


def delete(*, level: Level, actor: str) -> None:
    """An empty level goes; `Conflict` while anything is below it (revoked keys keep their project)."""
    what, path = str(level._meta.model_name), level.path
    below = {Organisation: "teams", Team: "projects", Project: "keys"}[type(level)]
    with transaction.atomic():
        count = getattr(level, below).count()
        if count:
            raise Conflict("not_empty", f"the {what} {path} still has {count} {below}, and stays")
        level.delete()
        audit.record(actor=actor, action=f"{what}.delete", subject=path)
        announce("tenancy")


def _create(cls: type[L], what: str, name: str, allow: list[str] | None, actor: str, **above: Any) -> L:
    name = names.clean(name)
    problem = names.problem(f"{'an' if what[0] in 'aeiou' else 'a'} {what}", name)
    if problem is not None:
        raise Invalid.several((problem,))
    try:
        with transaction.atomic():
            level = cls(name=name, allow=clean_allow(allow), **above)
            level.save(force_insert=True)
            audit.record(actor=actor, action=f"{what}.create", subject=level.path, allow=level.allow)
            announce("tenancy")
    except IntegrityError:
        where = "".join(f" in {parent.path}" for parent in above.values())
        raise Conflict(
            "name_taken", f"there is already the {what} {name}{where}", f"llmgw {_NOUNS[what]} list"
        ) from None
    return level


_NOUNS = {"organisation": "org", "team": "team", "project": "project"}
