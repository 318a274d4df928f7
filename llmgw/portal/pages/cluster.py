"""The overview of the cluster, and the stream that keeps it true."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import get_language

from llmgw.portal import live, overview
from llmgw.portal.gate import administrators
from tenancy.access import may_administer


@administrators
def cluster(request: HttpRequest) -> HttpResponse:
    return render(request, "portal/cluster/page.html", overview.context(overview.load(), live=False))


async def stream(request: HttpRequest) -> HttpResponseBase:
    """Server-sent events for administrators; `?moved` for pages that only want to hear that something moved."""
    if not may_administer(await request.auser()):
        return HttpResponse(status=403)
    source = live.events(get_language() or "en", parts="moved" not in request.GET)
    response = StreamingHttpResponse(source, content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response
