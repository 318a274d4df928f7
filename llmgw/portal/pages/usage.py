"""What somebody has used: tokens and requests by day, as a plot with its table, and by model."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from gateway.models import Usage
from llmgw.portal import days, plot, traffic
from llmgw.portal.gate import person, signed_in

RANGES = (7, 30, 90)


def zone() -> ZoneInfo:
    """The zone whose days are counted, on every page alike."""
    return ZoneInfo(settings.TIME_ZONE)


@signed_in
def usage(request: HttpRequest) -> HttpResponse:
    who = person(request)
    asked = request.GET.get("days", "")
    count = int(asked) if asked.isascii() and asked.isdigit() and int(asked) in RANGES else 30
    whole = who.is_superuser and request.GET.get("whose") == "all"
    rows = Usage.objects.all() if whole else Usage.objects.filter(person=who.public_id)
    first, last = days.latest(count, timezone.now(), zone())
    daily = traffic.by_day(rows, first, last, zone())
    models = traffic.by_model(rows, first, last, zone())
    context = {
        "daily": list(reversed(daily)),
        "columns": daily,
        "models": models,
        "total": traffic.Used(
            None,
            sum(d.requests for d in daily),
            sum(d.prompt for d in daily),
            sum(d.completion for d in daily),
            sum(d.unknown for d in daily),
        ),
        "plots": {
            "tokens": plot.stacked([d.prompt for d in daily], [d.completion for d in daily]),
            "requests": plot.stacked([d.requests for d in daily]),
        },
        "count": count,
        "ranges": RANGES,
        "whole": whole,
        "zone": settings.TIME_ZONE,
    }
    return render(request, "portal/usage.html", context)
