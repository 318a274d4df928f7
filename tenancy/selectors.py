"""The tree, its people and keys as plain rows, for commands and the API; and rows by what people call them."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from llmgw.cluster.errors import Invalid, NotFound
from llmgw.fold import fold
from tenancy import allowances
from tenancy.core.keys import PREFIX, SHOWN
from tenancy.models import Key, Level, Membership, Organisation, Person, Project, Team


def organisations() -> QuerySet[Organisation]:
    return Organisation.objects.annotate(teams_count=Count("teams")).order_by("name")


def teams() -> QuerySet[Team]:
    found = Team.objects.select_related("organisation").annotate(projects_count=Count("projects"))
    return found.order_by("organisation__name", "name")


def projects() -> QuerySet[Project]:
    found = Project.objects.select_related("team__organisation").annotate(
        keys_count=Count("keys", filter=_living("keys__"))
    )
    return found.order_by("team__organisation__name", "team__name", "name")


def people() -> QuerySet[Person]:
    found = Person.objects.annotate(keys_count=Count("keys", filter=_living("keys__"))).order_by("email")
    return found.prefetch_related(
        "memberships__organisation", "memberships__team__organisation", "memberships__project__team__organisation"
    )


def keys(*, living: bool = False) -> QuerySet[Key]:
    found = Key.objects.select_related("project__team__organisation", "person")
    return found.filter(_living()) if living else found


def organisation(ref: str) -> Organisation:
    """By public id or name; raises `NotFound`."""
    found = Organisation.objects.filter(Q(public_id=ref) | Q(name=ref.strip())).first()
    if found is None:
        raise NotFound("no_such_organisation", f"there is no organisation {ref}", "llmgw org list")
    return found


def team(ref: str) -> Team:
    """By public id or `organisation/team`."""
    path = _path(ref, 2)
    found = Team.objects.select_related("organisation").filter(
        Q(public_id=ref) if path is None else Q(organisation__name=path[0], name=path[1])
    )
    if (first := found.first()) is None:
        raise NotFound("no_such_team", f"there is no team {ref}; a team is called organisation/team", "llmgw team list")
    return first


def project(ref: str) -> Project:
    """By public id or `organisation/team/project`; an empty `ref` is the only project there is."""
    all_projects = Project.objects.select_related("team__organisation")
    if not ref:
        several = list(all_projects[:2])
        if not several:
            raise NotFound(
                "no_such_project", "there is no project yet", "llmgw project create organisation/team/project"
            )
        if len(several) != 1:
            raise Invalid(
                "which_project", "say which project: --project organisation/team/project", "llmgw project list"
            )
        return several[0]
    path = _path(ref, 3)
    found = all_projects.filter(
        Q(public_id=ref) if path is None else Q(team__organisation__name=path[0], team__name=path[1], name=path[2])
    )
    if (first := found.first()) is None:
        raise NotFound(
            "no_such_project",
            f"there is no project {ref}; a project is called organisation/team/project",
            "llmgw project list",
        )
    return first


def level(ref: str) -> Level:
    """An organisation, team or project by its path."""
    match ref.count("/"):
        case 0:
            return organisation(ref)
        case 1:
            return team(ref)
        case _:
            return project(ref)


def person(ref: str) -> Person:
    """By e-mail address or public id."""
    found = Person.objects.filter(Q(email=fold(ref)) | Q(public_id=ref)).first()
    if found is None:
        raise NotFound("no_such_person", f"there is no account for {ref}", "llmgw user list")
    return found


def key(ref: str) -> Key:
    """By public id or the characters that are shown of it. A whole key is refused: it would be in a shell's history."""
    if ref.startswith(PREFIX) and len(ref) > SHOWN:
        raise Invalid(
            "whole_key",
            f"name a key by its id or its first {SHOWN} characters; a whole key does not belong on a command line",
            "llmgw key list",
        )
    found = list(keys().filter(Q(public_id=ref) | Q(prefix=ref))[:2])
    if not found:
        raise NotFound("no_such_key", f"there is no key {ref}", "llmgw key list --all")
    if len(found) > 1:
        raise Invalid("which_key", f"several keys begin with {ref}: name it by its id", "llmgw key list --all")
    return found[0]


def organisation_row(row: Organisation) -> dict[str, Any]:
    return {**_level_row(row), "teams": getattr(row, "teams_count", 0)}


def team_row(row: Team) -> dict[str, Any]:
    return {**_level_row(row), "projects": getattr(row, "projects_count", 0)}


def project_row(row: Project) -> dict[str, Any]:
    return {**_level_row(row), "keys": getattr(row, "keys_count", 0)}


def person_row(row: Person) -> dict[str, Any]:
    return {
        "id": row.public_id,
        "email": row.email,
        "name": row.name,
        "administrator": row.is_superuser,
        "active": row.is_active,
        "must_change_password": row.must_change_password,
        "memberships": [membership_row(m) for m in row.memberships.all()],
        "keys": getattr(row, "keys_count", 0),
        "last_login": row.last_login,
        "created_at": row.created_at,
    }


def membership_row(row: Membership) -> dict[str, Any]:
    return {"level": row.level.path, "role": str(row.role)}


def key_row(row: Key) -> dict[str, Any]:
    return {
        "id": row.public_id,
        "name": row.name,
        "prefix": row.prefix,
        "state": key_state(row),
        "project": row.project.path,
        "person": row.person.email if row.person else None,
        "scope": str(row.scope),
        "limits": allowances.limits(row),
        **allowances.terms(row),
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "last_used_at": row.last_used_at,
        "created_at": row.created_at,
    }


def key_state(row: Key) -> str:
    """live | expired | revoked."""
    if row.revoked_at is not None:
        return "revoked"
    return "live" if row.lives(timezone.now()) else "expired"


def _level_row(row: Level) -> dict[str, Any]:
    return {
        "id": row.public_id,
        "path": row.path,
        "name": row.name,
        "limits": allowances.limits(row),
        **allowances.terms(row),
        "created_at": row.created_at,
    }


def _living(prefix: str = "") -> Q:
    return Q(**{f"{prefix}revoked_at": None}) & (
        Q(**{f"{prefix}expires_at": None}) | Q(**{f"{prefix}expires_at__gt": Now()})
    )


def _path(ref: str, parts: int) -> list[str] | None:
    path = [p.strip() for p in ref.split("/")]
    return path if len(path) == parts else None
