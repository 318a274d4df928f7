"""The only way to get an object of the tree for a person: what may not be seen is not found.

Administrators reach everything. A role at a level holds for what is below it: members use its projects and manage
their own keys there, owners manage every key there.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet

from llmgw.cluster.errors import Forbidden, NotFound
from tenancy.core.roles import Held, Place, Role, role_at
from tenancy.core.roles import may_limit as may_limit_at
from tenancy.core.terms import TERMS
from tenancy.models import Key, Membership, Organisation, Person, Project, Team

Who = Person | AnonymousUser
_OWN = frozenset({"reuse", "keep"})


def may_administer(person: Who) -> bool:
    """An administrator who is active and is not still to choose a password."""
    return isinstance(person, Person) and person.is_active and person.is_superuser and not person.must_change_password


def require_administrator(person: Who) -> Person:
    if not isinstance(person, Person) or not may_administer(person):
        raise Forbidden("administrators_only", "this is for administrators of the cluster")
    return person


def projects_for(person: Who, role: Role | None = None) -> QuerySet[Project]:
    """The projects that `person` belongs to, with their path; with `role` OWNER those where that is an owner."""
    projects = Project.objects.select_related("team__organisation")
    if not isinstance(person, Person) or not person.is_active:
        return projects.none()
    if person.is_superuser:
        return projects
    held = Membership.objects.filter(person=person)
    if role is Role.OWNER:
        held = held.filter(role=Membership.Role.OWNER)
    return projects.filter(
        Q(pk__in=held.filter(project__isnull=False).values("project"))
        | Q(team__in=held.filter(team__isnull=False).values("team"))
        | Q(team__organisation__in=held.filter(organisation__isnull=False).values("organisation"))
    )


def project_for(person: Who, public_id: str) -> Project:
    """The project, when `person` belongs to it; raises `NotFound`."""
    found = projects_for(person).filter(public_id=public_id).first()
    if found is None:
        raise NotFound("no_such_project", "there is no such project, or you do not belong to it")
    return found


def role_in(person: Who, project: Project) -> Role | None:
    """OWNER for administrators too; None where `person` does not belong."""
    if not isinstance(person, Person) or not person.is_active:
        return None
    if person.is_superuser:
        return Role.OWNER
    return role_at(_held(person), place(project))


def keys_for(person: Who) -> QuerySet[Key]:
    """Every key that `person` may see and revoke: own ones, and all of the projects that are the person's."""
    keys = Key.objects.select_related("project__team__organisation", "person")
    if not isinstance(person, Person) or not person.is_active:
        return keys.none()
    if person.is_superuser:
        return keys
    return keys.filter(Q(person=person) | Q(project__in=projects_for(person, Role.OWNER)))


def key_for(person: Who, public_id: str) -> Key:
    """The key, when `person` may manage it; raises `NotFound`."""
    found = keys_for(person).filter(public_id=public_id).first()
    if found is None:
        raise NotFound("no_such_key", "there is no such key, or it is not yours")
    return found


def may_create_key(person: Who, project: Project, holder: Person | None) -> bool:
    """Members make keys for themselves, owners for anybody or for nobody in particular."""
    role = role_in(person, project)
    return role is Role.OWNER or (role is Role.MEMBER and holder is not None and holder == person)


def level_for(person: Who, public_id: str) -> Organisation | Team | Project:
    """The level, when it binds `person`: a role there, above it or below it; raises `NotFound`."""
    found: list[Organisation | Team | Project] = []
    found += Organisation.objects.filter(public_id=public_id)
    found += Team.objects.select_related("organisation").filter(public_id=public_id)
    found += Project.objects.select_related("team__organisation").filter(public_id=public_id)
    if not found or not _binds(person, place(found[0])):
        raise NotFound("no_such_level", "there is no such organisation, team or project, or you do not belong to it")
    return found[0]


def may_limit(person: Who, level: Organisation | Team | Project | Key) -> bool:
    """Whether `person` may set what `level` allows: owners of a level above it, and administrators. A key's limits are
    set by owners of its project."""
    if not isinstance(person, Person) or not person.is_active:
        return False
    if person.is_superuser:
        return True
    if isinstance(level, Key):
        return role_in(person, level.project) is Role.OWNER
    return may_limit_at(_held(person), place(level))


def settable(person: Who, level: Organisation | Team | Project | Key) -> frozenset[str]:
    """Of what `level` may say, the names that `person` may set: `limits`, and terms. A project's weight counts against
    everybody's, and is an administrator's; its reuse of answers and keeping of requests are its own owners'."""
    everything = frozenset({"limits", *TERMS[str(level._meta.model_name)]})
    if isinstance(person, Person) and person.is_active and person.is_superuser:
        return everything
    found = everything - {"weight", *_OWN} if may_limit(person, level) else frozenset()
    if isinstance(level, Project) and role_in(person, level) is Role.OWNER:
        found |= _OWN
    return found


def require_settable(person: Who, level: Organisation | Team | Project | Key, names: Iterable[str]) -> None:
    beyond = sorted(set(names) - settable(person, level))
    if beyond:
        raise Forbidden(
            "not_an_owner",
            f"you may not set {', '.join(beyond)} here: limits are set by owners of a level above, and administrators",
        )


def place(level: Organisation | Team | Project) -> Place:
    """Where a level stands in the tree, by public ids."""
    match level:
        case Organisation():
            return Place(level.public_id)
        case Team():
            return Place(level.organisation.public_id, level.public_id)
        case Project():
            return Place(level.team.organisation.public_id, level.team.public_id, level.public_id)


def _binds(person: Who, level: Place) -> bool:
    if not isinstance(person, Person) or not person.is_active:
        return False
    return person.is_superuser or any(h.at.within(level) or level.within(h.at) for h in _held(person))


def _held(person: Person) -> list[Held]:
    rows = Membership.objects.filter(person=person).select_related(
        "organisation", "team__organisation", "project__team__organisation"
    )
    return [Held(place(row.level), Role(row.role)) for row in rows]
