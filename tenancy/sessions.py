"""Ending a person's sessions: Django keeps them without saying whose they are, so each is looked into."""

from __future__ import annotations

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone

from tenancy.models import Person


def end_all(person: Person) -> int:
    """Every browser that `person` is signed in with is signed out; how many sessions those were."""
    theirs = [
        session.pk
        for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator()
        if session.get_decoded().get(SESSION_KEY) == str(person.pk)
    ]
    return Session.objects.filter(pk__in=theirs).delete()[0]
