"""The scripts' words in the page's language, as a script: the policy allows none written into a page."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.views.i18n import JavaScriptCatalog

from llmgw.portal.assets import FOR_EVER


class Words(JavaScriptCatalog):
    packages = ["llmgw.portal"]

    def get_paths(self, packages: list[str]) -> list[str]:
        return [str(path) for path in settings.LOCALE_PATHS]

    def get(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        asked = request.GET.get("l", "")
        language = asked if asked in dict(settings.LANGUAGES) else translation.get_language() or settings.LANGUAGE_CODE
        with translation.override(language):
            response = super().get(request, *args, **kwargs)
        if "v" in request.GET:
            response["Cache-Control"] = FOR_EVER
        return response
