"""A visitor's language and theme: cookies, so that the first byte of a page is right; a person's language too."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import translation
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from tenancy.models import Person

THEME_COOKIE = "llmgw_theme"
THEMES = ("system", "light", "dark")
_YEAR_S = 365 * 24 * 3600


class PersonLanguage(MiddlewareMixin):
    """Somebody's stored language, where the browser brings no choice of its own."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        if settings.LANGUAGE_COOKIE_NAME in request.COOKIES or settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return
        language = getattr(request.user, "language", "")
        if language in dict(settings.LANGUAGES):
            translation.activate(language)
            request.LANGUAGE_CODE = language


def theme(request: HttpRequest) -> str:
    chosen = request.COOKIES.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else "system"


@require_POST
def preferences(request: HttpRequest) -> HttpResponse:
    """Sets `language` or `theme`, then goes back to where the form was."""
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure()):
        target = "/"
    response = redirect(target)
    language = request.POST.get("language", "")
    if language in dict(settings.LANGUAGES):
        _keep(response, settings.LANGUAGE_COOKIE_NAME, language)
        if isinstance(request.user, Person) and request.user.language != language:
            Person.objects.filter(pk=request.user.pk).update(language=language)
    if request.POST.get("theme") in THEMES:
        _keep(response, THEME_COOKIE, request.POST["theme"])
    return response


def _keep(response: HttpResponse, name: str, value: str) -> None:
    secure = settings.SESSION_COOKIE_SECURE
    response.set_cookie(name, value, max_age=_YEAR_S, samesite="Lax", secure=secure, httponly=name != THEME_COOKIE)
