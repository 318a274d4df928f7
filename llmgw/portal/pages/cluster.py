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
    """Server-sent events for administrators: the overview's parts; `?moved` for pages that only want to hear that
    something moved, and `?moved&topic=` where parts of them move by themselves, too."""
    if not may_administer(await request.auser()):
        return HttpResponse(status=403)
    moves = "moved" in request.GET
    topic = request.GET.get("topic", "") if moves else "cluster"
    if topic and topic.partition(":")[0] not in live.SOURCES:
        return HttpResponse(status=404)
    source = live.events(get_language() or "en", topic[:200], moves=moves)
    response = StreamingHttpResponse(source, content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response
