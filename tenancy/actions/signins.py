"""Sign-ins as the audit log has them: who came, who left, whose password was wrong."""

from __future__ import annotations

from llmgw.cluster.actions import audit
from llmgw.fold import fold
from tenancy.models import Person


def signed_in(*, person: Person, address: str) -> None:
    audit.record(actor=person.email, action="session.sign_in", subject=person.email, address=address)


def signed_out(*, person: Person, address: str) -> None:
    audit.record(actor=person.email, action="session.sign_out", subject=person.email, address=address)


def refused(*, email: str, address: str) -> None:
    """A sign-in that failed. Only an address that has an account is kept: people type passwords into that field."""
    known = Person.objects.filter(email=fold(email)).values_list("email", flat=True).first()
    audit.record(actor=known or "somebody", action="session.refused", subject=known or "", address=address)
