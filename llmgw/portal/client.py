"""Who called: on a unix socket there is no peer address, so the edge's verified one takes its place."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin


class ClientAddress(MiddlewareMixin):
    """Fills an empty REMOTE_ADDR from `X-Forwarded-For`, which the edge sets to the one address that it saw.

    Over TCP (tests, `runserver`) REMOTE_ADDR is there and the header is whatever a client wrote: it is not read.
    """

    def process_request(self, request: HttpRequest) -> None:
        if not request.META.get("REMOTE_ADDR"):
            forwarded = str(request.META.get("HTTP_X_FORWARDED_FOR", ""))
            request.META["REMOTE_ADDR"] = forwarded.rpartition(",")[2].strip() or "127.0.0.1"
