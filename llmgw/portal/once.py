"""A page asks for the settings in many places: it is given one reading of them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from llmgw.cluster import look


class OneLook(MiddlewareMixin):
    """See `llmgw.cluster.look`."""

    def process_request(self, request: HttpRequest) -> None:
        look.begin()

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        look.end()
        return response
