"""A password that somebody else chose is changed before anything else is done with it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _

from tenancy.actions import people
from tenancy.models import Person

_OPEN = {"account_change_password", "account_logout", "preferences", "words", "find"}


class MustChangePassword(MiddlewareMixin):
    """Leads to the change page whoever signed in with a password that was given to him."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or match.url_name in _OPEN:
            return None
        person = request.user
        if not getattr(person, "must_change_password", False):
            return None
        if request.path.startswith("/api/"):
            message = "this password was given to you: change it in the portal first"
            return JsonResponse({"error": {"code": "must_change_password", "message": message}}, status=403)
        if request.method == "GET":
            messages.info(request, _("This password was given to you. Choose one of your own to go on."))
        return redirect(reverse("account_change_password"))


def chosen(sender: Any, request: HttpRequest, user: Person, **kwargs: Any) -> None:
    """allauth's signal: this person chose a password."""
    people.password_changed(person=user)
