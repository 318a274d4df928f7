"""What was used and what it cost: by day and model as plots with their tables, and each table as CSV too.

Everybody sees their own; owners of a project all of it; administrators everything. Days are those of the page's zone,
here as in the API and wherever else days are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from gateway import spending
from llmgw.money import written
from llmgw.portal import plot, spreadsheet, traffic
from llmgw.portal.gate import person, signed_in
from tenancy import access
from tenancy.core.roles import Role
from tenancy.models import Project

RANGES = (7, 30, 90)
MOST_SERIES = 7


@dataclass(frozen=True, slots=True)
class Shown:
    """What the address asks for."""

    count: int
    whose: str
    """Empty: the visitor's own; `all`; or a project's public id."""
    tag: str
    which: spending.Which
    projects: list[Project]
    """Those whose whole usage the visitor may see."""

    @property
    def zone(self) -> str:
        return timezone.get_current_timezone_name()

    @property
    def query(self) -> str:
        """The address's filters without the range, for links."""
        found = QueryDict(mutable=True)
        found.update({name: value for name, value in (("whose", self.whose), ("tag", self.tag)) if value})
        return f"&{found.urlencode()}" if found else ""


def shown(request: HttpRequest) -> Shown:
    who = person(request)
    asked = request.GET.get("days", "")
    count = int(asked) if asked.isascii() and asked.isdigit() and int(asked) in RANGES else 30
    projects = list(access.projects_for(who, Role.OWNER).order_by("team__organisation__name", "team__name", "name"))
    whose, tag = request.GET.get("whose", ""), request.GET.get("tag", "").strip()[:600]
    fields = {"tag": tag} if tag else {}
    if whose in {project.public_id for project in projects}:
        fields["project"] = whose
    elif not (whose == "all" and who.is_superuser):
        whose = ""
        fields["person"] = who.public_id
    return Shown(count, whose, tag, spending.last_days(count, fields), projects)


@signed_in
def usage(request: HttpRequest) -> HttpResponse:
    found = shown(request)
    days, by_model = spending.days_by(found.which, "model", MOST_SERIES)
    context = {
        "shown": found,
        "daily": list(reversed(spending.by(found.which, "day"))),
        "columns": days,
        "models": traffic.by_model(found.which),
        "series": list(by_model),
        "total": traffic.total(found.which),
        "plots": plots(by_model, days),
        "ranges": RANGES,
    }
    return render(request, "portal/usage.html", context)


def plots(by_model: dict[str, list[dict[str, int]]], days: list[date]) -> dict[str, plot.Plot | None]:
    """Pure: a layer for each model; no plot of money where nothing cost any."""
    tokens = [[day["prompt_tokens"] + day["completion_tokens"] for day in each] for each in by_model.values()]
    costs = [[max(0, day["cost"]) for day in each] for each in by_model.values()]
    requests = [[day["requests"] for day in each] for each in by_model.values()]
    nothing: list[list[int]] = [[0] * len(days)]
    return {
        "tokens": plot.stacked(*(tokens or nothing)),
        "requests": plot.stacked(*(requests or nothing)),
        "cost": plot.stacked(*costs) if any(map(any, costs)) else None,
    }


@signed_in
def by_day(request: HttpRequest) -> HttpResponse:
    """The table of days, the newest first as on the page; each row says its zone."""
    found = shown(request)
    rows = [(d["day"].isoformat(), found.zone, *_cells(d)) for d in reversed(spending.by(found.which, "day"))]
    return spreadsheet.download(f"usage-{found.count}-days", ("day", "zone", *HEADS), rows)


@signed_in
def by_model(request: HttpRequest) -> HttpResponse:
    """The table of models, in the page's order."""
    found = shown(request)
    rows = [(d["model"], *_cells(d), d["uncounted"]) for d in spending.by(found.which, "model")]
    head = ("model", *HEADS, "requests_without_count")
    return spreadsheet.download(f"usage-{found.count}-days-by-model", head, rows)


HEADS = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost")


def _cells(sums: dict[str, Any]) -> tuple[Any, ...]:
    return (*(sums[name] for name in HEADS[:-1]), written(sums["cost"]))
