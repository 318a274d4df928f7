"""Who may call the admin API: an administrator, by session or by a key of scope `admin`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from llmgw.keys import key_hash
from tenancy.access import may_administer
from tenancy.models import Key, Person

_USE_EVERY = timedelta(minutes=1)
"""How exactly a key's last use is remembered; each call would be a write."""


class AdminKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer llmgw_…`: the row is asked each time, so that a revoked key is refused at once."""

    def authenticate(self, request: Request) -> tuple[Person, Key] | None:
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        now = timezone.now()
        key = Key.objects.select_related("person").filter(hash=key_hash(text.strip())).first()
        if key is None or not key.lives(now):
            raise AuthenticationFailed("the key is not known, was revoked, or has expired")
        if key.scope != Key.Scope.ADMIN:
            raise AuthenticationFailed("this key is for inference; the admin API takes a key of scope admin")
        if key.person is None or not may_administer(key.person):
            raise AuthenticationFailed("the key's person is no active administrator")
        Key.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=now - _USE_EVERY), pk=key.pk).update(
            last_used_at=now
        )
        return key.person, key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="llmgw admin API"'


class IsAdministrator(BasePermission):
    """Administrators alone, and only with a password of their own."""

    message = "this is for administrators of the cluster"

    def has_permission(self, request: Request, view: Any) -> bool:
        return may_administer(request.user)


def actor_of(request: Request) -> str:
    """Who changes something by the API, for the audit log."""
    how = f"key {request.auth.prefix}" if isinstance(request.auth, Key) else "session"
    return f"{getattr(request.user, 'email', 'anonymous')} (API, {how})"
