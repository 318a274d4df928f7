"""What somebody has used: tokens and requests by day, as a plot with its table, and by model; each table as CSV too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from gateway import spending
from llmgw.portal import plot, spreadsheet, traffic
from llmgw.portal.gate import person, signed_in

RANGES = (7, 30, 90)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the address asks for, the oldest day first. Days are those of `zone`, here as in the API and wherever
    else days are counted."""

    count: int
    whole: bool
    zone: str
    daily: list[dict[str, Any]]
    models: list[traffic.Used]
    total: traffic.Used


def shown(request: HttpRequest) -> Shown:
    who = person(request)
    asked = request.GET.get("days", "")
    count = int(asked) if asked.isascii() and asked.isdigit() and int(asked) in RANGES else 30
    whole = who.is_superuser and request.GET.get("whose") == "all"
    whose = None if whole else who.public_id
    which = spending.last_days(count, {"person": whose} if whose else {})
    zone = timezone.get_current_timezone_name()
    return Shown(count, whole, zone, spending.by(which, "day"), traffic.by_model(which), traffic.total(which))


@signed_in
def usage(request: HttpRequest) -> HttpResponse:
    found = shown(request)
    daily = found.daily
    context = {
        "daily": list(reversed(daily)),
        "columns": [d["day"] for d in daily],
        "models": found.models,
        "total": found.total,
        "plots": {
            "tokens": plot.stacked([d["prompt_tokens"] for d in daily], [d["completion_tokens"] for d in daily]),
            "requests": plot.stacked([d["requests"] for d in daily]),
        },
        "count": found.count,
        "ranges": RANGES,
        "whole": found.whole,
        "zone": found.zone,
    }
    return render(request, "portal/usage.html", context)


@signed_in
def by_day(request: HttpRequest) -> HttpResponse:
    """The table of days, the newest first as on the page; each row says its zone."""
    found = shown(request)
    rows = [
        (d["day"].isoformat(), found.zone, d["requests"], d["prompt_tokens"], d["completion_tokens"])
        for d in reversed(found.daily)
    ]
    head = ("day", "zone", "requests", "prompt_tokens", "completion_tokens")
    return spreadsheet.download(f"usage-{found.count}-days", head, rows)


@signed_in
def by_model(request: HttpRequest) -> HttpResponse:
    """The table of models, the most tokens first as on the page."""
    found = shown(request)
    rows = [(u.model, u.requests, u.prompt, u.completion, u.unknown) for u in found.models]
    head = ("model", "requests", "prompt_tokens", "completion_tokens", "requests_without_count")
    return spreadsheet.download(f"usage-{found.count}-days-by-model", head, rows)
