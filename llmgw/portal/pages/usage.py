"""What somebody has used: tokens and requests by day, as a plot with its table, and by model."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from gateway import selectors
from llmgw.portal import plot, traffic
from llmgw.portal.gate import person, signed_in

RANGES = (7, 30, 90)


@signed_in
def usage(request: HttpRequest) -> HttpResponse:
    """Days are those of the cluster's zone, here as in the API and wherever else days are counted."""
    who = person(request)
    asked = request.GET.get("days", "")
    count = int(asked) if asked.isascii() and asked.isdigit() and int(asked) in RANGES else 30
    whole = who.is_superuser and request.GET.get("whose") == "all"
    whose = None if whole else who.public_id
    daily = selectors.by_day(days=count, person=whose)
    models = traffic.by_model(daily[0]["day"], whose)
    context = {
        "daily": list(reversed(daily)),
        "columns": [d["day"] for d in daily],
        "models": models,
        "total": traffic.total(models),
        "plots": {
            "tokens": plot.stacked([d["prompt_tokens"] for d in daily], [d["completion_tokens"] for d in daily]),
            "requests": plot.stacked([d["requests"] for d in daily]),
        },
        "count": count,
        "ranges": RANGES,
        "whole": whole,
        "zone": settings.TIME_ZONE,
    }
    return render(request, "portal/usage.html", context)
