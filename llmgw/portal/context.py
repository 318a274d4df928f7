"""What every page's template is given."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import get_language

from llmgw.cluster.actions import settings as cluster_settings
from llmgw.portal import menu, preferences


def house(request: HttpRequest) -> dict[str, Any]:
    match = getattr(request, "resolver_match", None)
    user = getattr(request, "user", None)
    groups = menu.for_person(user)
    return {
        "menu": groups,
        "serving": cluster_settings.in_force().serving if groups else None,
        "section": (match.kwargs.get("section") or match.url_name or "").partition("-")[0] if match else "",
        "theme": preferences.theme(request),
        "themes": preferences.THEMES,
        "languages": settings.LANGUAGES,
        "language": get_language() or settings.LANGUAGE_CODE,
        "words_version": _words_version(),
        "here": request.get_full_path(),
        "rehearsal": settings.MACHINE.rehearsal,
    }


@cache
def _words_version() -> str:
    """Moves with any catalogue of the scripts' words, so that a browser may keep them for ever."""
    digest = hashlib.sha256()
    for folder in settings.LOCALE_PATHS:
        for path in sorted(Path(folder).glob("*/LC_MESSAGES/djangojs.mo")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:10]
