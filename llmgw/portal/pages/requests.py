"""Requests: the latest ones, filtered by the address, and one with all that is known of it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from catalog import selectors as catalog
from gateway import selectors
from gateway.actions.kept import require_reader
from gateway.control import kept
from gateway.models import Usage
from llmgw.cluster.why import why
from llmgw.portal import listing
from llmgw.portal.gate import administrators, person, signed_in
from llmgw.portal.life import life
from tenancy.models import Key, Person, Project

FILTERS = ("model", "outcome", "replica", "project", "key", "person")
COLUMNS = {
    "at": "-at",
    "model": "model",
    "outcome": "outcome",
    "status": "-status",
    "prompt": "-prompt_tokens",
    "answer": "-completion_tokens",
    "first": "-ttft_ms",
    "duration": "-duration_ms",
    "replica": "replica",
}


@administrators
def requests(request: HttpRequest) -> HttpResponse:
    rows = Usage.objects.all()
    chosen = {name: request.GET[name] for name in FILTERS if request.GET.get(name)}
    if chosen:
        rows = rows.filter(**chosen)
    query = request.GET.get("q", "").strip()
    if query:
        rows = rows.filter(request_id__startswith=query)
    order = listing.sorting(request, COLUMNS)
    context = {
        "page": listing.page(request, listing.ordered_rows(rows, order)),
        "sorting": order,
        "chosen": chosen,
        "outcomes": Usage.Outcome.choices,
        "models": Usage.objects.order_by("model").values_list("model", flat=True).distinct()[:200],
    }
    return render(request, "portal/requests/list.html", context)


@signed_in
def one(request: HttpRequest, id: str) -> HttpResponse:
    """For administrators, and for owners of the project that it was for."""
    found = selectors.request(id)
    kept_for = kept.project_of(id)
    require_reader(person(request), kept_for or found["project"])
    context = {
        "usage": found,
        "project": Project.objects.select_related("team__organisation").filter(public_id=found["project"]).first(),
        "key": Key.objects.filter(public_id=found["key"]).first() if found["key"] else None,
        "who": Person.objects.filter(public_id=found["person"]).first() if found["person"] else None,
        "life": life(found),
        "cached_share": _share(found["cached_tokens"], found["prompt_tokens"]),
        "why": why(id, "request"),
        "kept": bool(kept_for),
        "replays": kept.replays(id) if kept_for else [],
        "replay_of": kept.replay_of(id) if kept_for else "",
        "models": [entry.name for entry in catalog.entries()] if kept_for else [],
    }
    return render(request, "portal/requests/one.html", context)


def _share(part: int | None, whole: int | None) -> float | None:
    """Per cent; None where that is not known."""
    return 100 * part / whole if part is not None and whole else None
