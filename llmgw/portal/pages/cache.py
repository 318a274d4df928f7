"""What reuse saved, project by project: answers given again, and prompts whose beginnings engines had read before."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from gateway import savings
from llmgw.portal import plot
from llmgw.portal.gate import administrators
from tenancy import selectors
from tenancy.models import Project

RANGES = (7, 30, 90)


@dataclass(frozen=True, slots=True)
class Line:
    """`project` is None where it is gone; `cached_percent` None where it had no prompts."""

    name: str
    project: Project | None
    requests: int
    hits: int
    reused_tokens: int
    cached_tokens: int
    cached_percent: float | None
    saved: int


@administrators
def cache(request: HttpRequest) -> HttpResponse:
    asked = request.GET.get("days", "")
    count = int(asked) if asked.isascii() and asked.isdigit() and int(asked) in RANGES else 30
    daily = savings.by_day(count)
    total = savings.total(daily)
    context = {
        "lines": _lines(count),
        "total": total,
        "saved": savings.money(total),
        "columns": [day["day"] for day in daily],
        "daily": list(reversed(daily)),
        "plot": plot.stacked([d["reused_tokens"] for d in daily], [d["cached_tokens"] for d in daily]),
        "count": count,
        "ranges": RANGES,
    }
    return render(request, "portal/cache.html", context)


def _lines(days: int) -> list[Line]:
    """Those that saved something, and those that reuse answers and have not yet."""
    projects = {p.public_id: p for p in selectors.projects()}
    saved = {row["project"]: row for row in savings.by_project(days)}
    idle = [p.public_id for p in projects.values() if p.reuse and p.public_id not in saved]
    found = []
    for public_id in (*saved, *idle):
        row = saved.get(public_id) or dict.fromkeys(savings.FIGURES, 0)
        project = projects.get(public_id)
        found.append(
            Line(
                name=project.path if project is not None else public_id,
                project=project,
                requests=row["requests"],
                hits=row["hits"],
                reused_tokens=row["reused_tokens"],
                cached_tokens=row["cached_tokens"],
                cached_percent=100 * row["cached_tokens"] / row["prompt_tokens"] if row["prompt_tokens"] else None,
                saved=savings.money(row),
            )
        )
    return found
