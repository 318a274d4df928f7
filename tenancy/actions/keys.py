"""Changes of keys: made (the secret is told once), revoked."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from agent.wire.reason import Reason
from llmgw.cluster.actions import audit
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Invalid
from tenancy.core import keys as core
from tenancy.core import limits as core_limits
from tenancy.core import names
from tenancy.core import terms as core_terms
from tenancy.core.limits import Limits
from tenancy.core.tree import clean_allow, narrow_days
from tenancy.models import Key, Level, Person, Project


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key and, this once, its secret."""

    key: Key
    secret: str = field(repr=False)


def create(
    *,
    project: Project,
    name: str,
    actor: str,
    person: Person | None = None,
    scope: str = Key.Scope.INFERENCE,
    days: int | None = None,
    allow: list[str] | None = None,
    limits: dict[str, Any] | None = None,
    band: str = Key.Band.NORMAL,
) -> NewKey:
    """A key of `project` for `person` that lives `days` (None: as long as its levels and the settings allow), with
    `limits` of its own (figures by their names, the budget as a decimal).

    Raises `Invalid` for a bad name, life or limit, a person who may not act any more, or an admin key for anybody but
    an administrator. Whether the actor may do this is asked before, by `tenancy.access`.
    """
    name = names.clean(name)
    life = _life(project, days)
    laid, bad_limits = core_limits.laid(Limits(), limits or {})
    terms, bad_terms = core_terms.cleaned("key", {"band": band})
    problems = [
        names.problem("a key", name, separator=False),
        life if isinstance(life, Reason) else None,
        _person_problem(person, scope),
        *bad_limits,
        *bad_terms,
    ]
    found = tuple(p for p in problems if p is not None)
    if found or isinstance(life, Reason):
        raise Invalid.several(found)
    made = core.secret(secrets.token_bytes(core.RANDOM_BYTES))
    with transaction.atomic():
        key = Key.objects.create(
            project=project,
            person=person,
            name=name,
            hash=made.hash,
            prefix=made.prefix,
            scope=scope,
            allow=clean_allow(allow),
            limits=core_limits.stored(laid),
            expires_at=life.expires_at,
            **terms,
        )
        audit.record(
            actor=actor,
            action="key.create",
            subject=key.public_id,
            name=name,
            prefix=key.prefix,
            project=project.path,
            person=person.email if person else None,
            scope=scope,
            limits=key.limits,
            expires_at=life.expires_at.isoformat() if life.expires_at else None,
        )
        announce("tenancy")
    return NewKey(key, made.text)


def revoke(*, key: Key, actor: str, reason: str = "") -> Key:
    """The key is refused from now on, everywhere within two seconds. A revoked one stays as it is."""
    with transaction.atomic():
        _revoke([key], actor, reason)
    key.refresh_from_db(fields=["revoked_at"])
    return key


def revoke_all(*, keys: Iterable[Key], actor: str, reason: str) -> int:
    """Every one of `keys` that still lives; how many those were."""
    with transaction.atomic():
        return _revoke(keys, actor, reason)


def _revoke(keys: Iterable[Key], actor: str, reason: str) -> int:
    count = 0
    for key in keys:
        if Key.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record(
                actor=actor, action="key.revoke", subject=key.public_id, name=key.name, prefix=key.prefix, reason=reason
            )
            count += 1
    if count:
        announce("tenancy")
    return count


def longest_days(project: Project) -> int | None:
    """How long a key of `project` may live: the shortest that a level of its tree or the settings say; None: for
    ever."""
    return narrow_days(*(days for days, _ in _said_days(project)))


def _life(project: Project, days: int | None) -> core.Life | Reason:
    said = [(most, command) for most, command in _said_days(project) if most is not None]
    most, command = min(said, key=lambda s: s[0], default=(None, core.CLUSTER))
    return core.life(days, most, timezone.now(), command)


def _said_days(project: Project) -> list[tuple[int | None, str]]:
    """What each says, and the command that changes it."""
    levels: tuple[Level, ...] = (project.team.organisation, project.team, project)
    return [
        (cluster_settings.in_force().keys.max_ttl_days, core.CLUSTER),
        *((level.key_ttl_days, f"llmgw limits set {level.path} --key-ttl-days DAYS") for level in levels),
    ]


def _person_problem(person: Person | None, scope: str) -> Reason | None:
    if scope not in Key.Scope.values:
        return Reason("bad_scope", f"a key's scope is one of {', '.join(Key.Scope.values)}, and not {scope!r}")
    if person is not None and not person.is_active:
        return Reason("person_inactive", f"{person.email} is deactivated, and gets no key")
    if scope == Key.Scope.ADMIN and (person is None or not person.is_superuser):
        who = person.email if person else "nobody"
        return Reason(
            "not_an_administrator", f"a key for the admin API belongs to an administrator, and this one to {who}"
        )
    return None
