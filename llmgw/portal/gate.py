"""Who may open a page: signed in, or an administrator. Refusals of any kind become a page in words, once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import url_has_allowed_host_and_scheme

from llmgw.cluster.errors import Refusal
from tenancy.access import require_administrator
from tenancy.models import Person

View = Callable[..., HttpResponseBase]

signed_in = login_required


def administrators(view: View) -> View:
    """Strangers are asked to sign in; anybody else but an administrator is refused."""

    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        require_administrator(request.user)
        return view(request, *args, **kwargs)

    return cast(View, guarded)


def person(request: HttpRequest) -> Person:
    """Whoever is signed in; for views behind a gate."""
    assert isinstance(request.user, Person)
    return request.user


class Refusals(MiddlewareMixin):
    """A `Refusal` that a page did not show itself, as a page with its sentence and the command that would help."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, Refusal) or request.path.startswith(("/api/", "/agent/")):
            return None
        context = {"refusal": exception, "back": _back(request)}
        return render(request, "portal/refusal.html", context, status=exception.status)


def _back(request: HttpRequest) -> str:
    """The page with the form whose change was refused; empty where there is none of ours."""
    referer = request.headers.get("Referer", "") if request.method == "POST" else ""
    known = url_has_allowed_host_and_scheme(referer, {request.get_host()}, require_https=request.is_secure())
    return referer if known else ""
