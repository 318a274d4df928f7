"""Static files, served by WhiteNoise's index in one piece each: they are small, and streams cost a thread.

An address with `?v=` names one content for ever, so a browser may keep it for ever.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware

FOR_EVER = "public, max-age=31536000, immutable"


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # it comes without types
    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponseBase:
        found = static_file.get_response(request.method, request.META)
        body = b""
        if found.file is not None:
            with found.file:
                body = found.file.read()
        response = HttpResponse(body, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        if "v" in request.GET:
            response["Cache-Control"] = FOR_EVER
        return response


def url(name: str) -> str:
    """The address of the static file `name`, with its content's version."""
    return f"{settings.STATIC_URL}{name}?v={_version(name)}"


@cache
def _cached(name: str) -> str:
    path = finders.find(name)
    if not path:
        raise ValueError(f"there is no static file {name}")
    return hashlib.sha256(Path(str(path)).read_bytes()).hexdigest()[:10]


def _version(name: str) -> str:
    if settings.DEBUG:
        _cached.cache_clear()
    return _cached(name)
