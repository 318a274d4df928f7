"""Changes of who belongs where: a role at one level, which holds for everything below it."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Invalid, NotFound
from tenancy import access
from tenancy.actions import keys
from tenancy.models import Level, Membership, Person


def grant(*, person: Person, level: Level, role: str, actor: str) -> Membership:
    """`person` has `role` at `level` from now on, whatever it was before."""
    if role not in Membership.Role.values:
        raise Invalid("bad_role", f"a role is one of {', '.join(Membership.Role.values)}, and not {role!r}")
    with transaction.atomic():
        at: dict[str, Any] = {str(level._meta.model_name): level}
        membership, _ = Membership.objects.update_or_create(person=person, **at, defaults={"role": role})
        audit.record(actor=actor, action="membership.grant", subject=person.email, level=level.path, role=role)
        announce("tenancy")
    return membership


def withdraw(*, person: Person, level: Level, actor: str) -> None:
    """`person` has no role at `level` any more; keys of projects out of the person's reach are revoked with it."""
    with transaction.atomic():
        count, _ = Membership.objects.filter(person=person, **{str(level._meta.model_name): level}).delete()
        if not count:
            raise NotFound("no_such_membership", f"{person.email} has no role at {level.path} itself")
        reach = set(access.projects_for(person).values_list("pk", flat=True))
        lost = person.keys.exclude(project__in=reach)
        revoked = keys.revoke_all(keys=lost, actor=actor, reason=f"{person.email} left {level.path}")
        audit.record(
            actor=actor, action="membership.withdraw", subject=person.email, level=level.path, keys_revoked=revoked
        )
        announce("tenancy")
