"""Changes of people: made with a generated password (told once), given a new one, made administrators, deactivated."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from agent.wire.reason import Reason
from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Conflict, Invalid
from llmgw.fold import fold
from tenancy import sessions
from tenancy.actions import keys
from tenancy.core import names, passwords
from tenancy.models import Person


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A person and, this once, the password that was generated."""

    person: Person
    password: str = field(repr=False)


def create(
    *, email: str, actor: str, name: str = "", administrator: bool = False, must_change_password: bool = True
) -> NewPassword:
    """An account for `email` with a generated password; `Invalid` for no address, `Conflict` where there is one."""
    email, name = fold(email), names.clean(name)
    problems = [_email_problem(email), names.problem("a person", name, separator=False) if name else None]
    found = tuple(p for p in problems if p is not None)
    if found:
        raise Invalid.several(found)
    password = passwords.password(secrets.token_bytes(passwords.RANDOM_BYTES))
    try:
        with transaction.atomic():
            person = Person.objects.create_user(
                email,
                password,
                name=name,
                is_staff=administrator,
                is_superuser=administrator,
                must_change_password=must_change_password,
            )
            audit.record(actor=actor, action="person.create", subject=email, administrator=administrator)
            announce("tenancy")
    except IntegrityError:
        raise Conflict("email_taken", f"there is already an account for {email}", "llmgw user list") from None
    return NewPassword(person, password)


def reset_password(*, person: Person, actor: str) -> NewPassword:
    """A new generated password, to be changed at the next sign-in; every session of the person ends."""
    password = passwords.password(secrets.token_bytes(passwords.RANDOM_BYTES))
    with transaction.atomic():
        person.set_password(password)
        person.must_change_password = True
        person.save(update_fields=["password", "must_change_password"])
        sessions.end_all(person)
        audit.record(actor=actor, action="person.reset_password", subject=person.email)
    return NewPassword(person, password)


def password_changed(*, person: Person) -> None:
    """The person chose a password: it need not be changed any more."""
    with transaction.atomic():
        Person.objects.filter(pk=person.pk).update(must_change_password=False)
        person.must_change_password = False
        audit.record(actor=person.email, action="person.change_password", subject=person.email)


def set_administrator(*, person: Person, administrator: bool, actor: str) -> Person:
    """Makes an administrator of `person`, or takes it back; the last one stays (`Conflict`)."""
    with transaction.atomic():
        if not administrator:
            _another_administrator(person)
        Person.objects.filter(pk=person.pk).update(is_staff=administrator, is_superuser=administrator)
        person.is_staff = person.is_superuser = administrator
        audit.record(actor=actor, action="person.role", subject=person.email, administrator=administrator)
        announce("tenancy")
    return person


def deactivate(*, person: Person, actor: str) -> Person:
    """No sign-in any more: sessions end, and the person's keys are revoked for good. Rows and usage stay."""
    with transaction.atomic():
        _another_administrator(person)
        Person.objects.filter(pk=person.pk).update(is_active=False)
        person.is_active = False
        revoked = keys.revoke_all(keys=person.keys.all(), actor=actor, reason=f"{person.email} was deactivated")
        sessions.end_all(person)
        audit.record(actor=actor, action="person.deactivate", subject=person.email, keys_revoked=revoked)
        announce("tenancy")
    return person


def activate(*, person: Person, actor: str) -> Person:
    """May sign in again, with the same password; keys that were revoked stay so."""
    with transaction.atomic():
        Person.objects.filter(pk=person.pk).update(is_active=True)
        person.is_active = True
        audit.record(actor=actor, action="person.activate", subject=person.email)
        announce("tenancy")
    return person


def _another_administrator(person: Person) -> None:
    """Refuses when `person` is the only one left who could undo the change."""
    administrators = Person.objects.select_for_update().filter(is_superuser=True, is_active=True)
    left = {a.pk for a in administrators}
    if left == {person.pk}:
        raise Conflict(
            "last_administrator",
            f"{person.email} is the only administrator: make another one first",
            "llmgw user role EMAIL administrator",
        )


def _email_problem(email: str) -> Reason | None:
    try:
        validate_email(email)
    except ValidationError:
        return Reason("bad_email", f"{email!r} is not an e-mail address")
    return None
