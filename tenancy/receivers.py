"""Django's signals of sign-ins, handed to the actions that write them down."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import HttpRequest

from tenancy.actions import signins
from tenancy.models import Person


def connect() -> None:
    user_logged_in.connect(_signed_in, dispatch_uid="tenancy.signed_in")
    user_logged_out.connect(_signed_out, dispatch_uid="tenancy.signed_out")
    user_login_failed.connect(_refused, dispatch_uid="tenancy.refused")


def _signed_in(sender: Any, request: HttpRequest | None, user: Person, **more: Any) -> None:
    signins.signed_in(person=user, address=_address(request))


def _signed_out(sender: Any, request: HttpRequest | None, user: Person | None, **more: Any) -> None:
    if isinstance(user, Person):
        signins.signed_out(person=user, address=_address(request))


def _refused(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **more: Any) -> None:
    email = credentials.get("email") or credentials.get("username") or ""
    signins.refused(email=str(email), address=_address(request))


def _address(request: HttpRequest | None) -> str:
    return str(request.META.get("REMOTE_ADDR", "")) if request is not None else ""
