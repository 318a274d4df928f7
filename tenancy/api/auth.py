"""Who may call the admin API: an administrator, by session or by a key of scope `admin`."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import IsAdminUser


class AdminKeyAuthentication(BaseAuthentication):
    def authenticate(self, request):  # type: ignore[no-untyped-def]
        return None


class IsAdministrator(IsAdminUser):
    pass
