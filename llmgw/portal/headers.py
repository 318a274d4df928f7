"""Response headers of every page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware


@sync_and_async_middleware
def ContentSecurityPolicy(get_response):  # type: ignore[no-untyped-def]  # noqa: N802
    return get_response
