"""Requests: found by what the address says, as a page, live, or as a file; and one with all that is known of it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone

from catalog import selectors as catalog
from gateway import exporting, moments, selectors
from gateway.actions.kept import require_reader
from gateway.control import kept
from gateway.models import Usage
from llmgw.cluster.errors import Refusal
from llmgw.cluster.why import why
from llmgw.fold import fold
from llmgw.portal import listing
from llmgw.portal.gate import administrators, person, signed_in
from llmgw.portal.life import life
from tenancy.models import Key, Person, Project

NAMED = ("model", "outcome", "project", "key", "person", "replica", "session", "tag")
"""What rows are found by; beside it `status`, `from`, `to`, and `q`, the beginning or the end of an id."""
WINDOW = 5000
"""Other orders than by time are of the newest so many: nothing else could be done quickly over all there are."""
ENDS = 100_000
"""The end of an id is looked for among the newest so many: no index has it."""
MOST_EXPORTED = 200_000
MOST_PROJECTS = 500
STATUSES = re.compile(r"([1-5])xx", re.IGNORECASE)
"""A whole kind of statuses."""
COLUMNS = {
    "at": "-at",
    "model": "model",
    "outcome": "outcome",
    "status": "-status",
    "prompt": "-prompt_tokens",
    "answer": "-completion_tokens",
    "cost": "-cost",
    "first": "-ttft_ms",
    "duration": "-duration_ms",
    "replica": "replica",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """`rows` the newest first. `problem`: what of the address makes no sense; then no row is shown. `looked`: among how
    many of the newest rows alone it was looked."""

    rows: QuerySet[Usage]
    chosen: dict[str, str]
    problem: str = ""
    looked: int = 0
    api: str | None = None
    """The same for the API, which has fewer ways to ask: None where it cannot."""


@administrators
def requests(request: HttpRequest) -> HttpResponse:
    asked = _asked(request)
    order = listing.sorting(request, COLUMNS)
    context: dict[str, Any] = {
        "asked": asked,
        "chosen": asked.chosen,
        "sorting": order,
        "window": WINDOW,
        "looked": asked.looked,
        "since": _shown(asked.chosen.get("from")),
        "until": _shown(asked.chosen.get("to"), end=True),
        "live": request.GET.get("live") == "1",
        "outcomes": Usage.Outcome.choices,
        "models": [entry.name for entry in catalog.entries()],
        "projects": [(p.public_id, p.path) for p in _projects()],
        "filters": _query(request, "sort", "page", "before", "live"),
    }
    if order.name:
        page = listing.page(request, listing.ordered_rows(_window(asked.rows), order))
        context |= {"page": page, "requests": page.object_list}
    else:
        found = list(asked.rows[: listing.PER_PAGE + 1])
        more = len(found) > listing.PER_PAGE
        found = found[: listing.PER_PAGE]
        context |= {"requests": found, "older": found[-1].request_id if more else "", "paged": "before" in request.GET}
    names = dict(context["projects"])
    for row in context["requests"]:
        row.project_path = names.get(row.project, row.project)
    return render(request, "portal/requests/list.html", context)


@administrators
def as_csv(request: HttpRequest) -> HttpResponseBase:
    """All of what the address finds, the newest first, as a file: written as it is read."""
    rows = exporting.csv_rows(_asked(request).rows[:MOST_EXPORTED])
    answer = StreamingHttpResponse(_lines(rows), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="requests.csv"'
    answer["Cache-Control"] = "private, no-store"
    return answer


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


def _asked(request: HttpRequest) -> Asked:
    get = request.GET.get
    text = {name: get(name, "").strip().replace("\0", "") for name in (*NAMED, "status", "from", "to", "q")}
    chosen = {name: value for name, value in text.items() if value}
    given: dict[str, Any] = {name: chosen[name] for name in NAMED if name in chosen}
    if "key" in given:
        given["key"] = _key(given["key"])
    if "person" in given:
        given["person"] = _person(given["person"])
    kind = STATUSES.fullmatch(chosen.get("status", ""))
    try:
        if "status" in chosen and kind is None:
            given["status"] = int(chosen["status"]) if chosen["status"].isdecimal() else -1
        if "from" in chosen:
            given["since"] = moments.read(chosen["from"])
        if "to" in chosen:
            given["until"] = moments.read(chosen["to"], end=True)
        rows = selectors.requests(**given, before=get("before") or None)
    except Refusal as e:
        return Asked(Usage.objects.none(), chosen, e.reason.sentence)
    if kind is not None:
        rows = rows.filter(status__gte=int(kind[1]) * 100, status__lt=int(kind[1]) * 100 + 100)
    asked_id = chosen.get("q", "").removesuffix("…").removeprefix("…")
    if asked_id.startswith("req_"):  # a stretch of ids, which an index has in order
        rows = rows.filter(request_id__gte=asked_id, request_id__lt=asked_id + "~")
    elif asked_id:
        return Asked(_window(rows, ENDS).filter(request_id__endswith=asked_id.upper()), chosen, looked=ENDS)
    return Asked(rows, chosen, api=None if kind or asked_id else _api(given))


def _key(text: str) -> str:
    """By id, or by what is shown of a key."""
    found = Key.objects.filter(prefix=text).values_list("public_id", flat=True).first()
    return found or text


def _api(given: dict[str, Any]) -> str:
    names = {"since": "from", "until": "to"}
    values = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()}
    return urlencode({names.get(name, name): value for name, value in values.items()})


def _person(text: str) -> str:
    """By id, or by address."""
    found = Person.objects.filter(email=fold(text)).values_list("public_id", flat=True).first()
    return found or text


def _shown(text: str | None, *, end: bool = False) -> str:
    """A moment of the address as the form's field takes it; nothing for one that makes no sense."""
    try:
        return f"{timezone.localtime(moments.read(text, end=end)):%Y-%m-%dT%H:%M}" if text else ""
    except Refusal:
        return ""


def _window(rows: QuerySet[Usage], most: int = WINDOW) -> QuerySet[Usage]:
    """The newest of them, found by when the last of these was."""
    last = rows.values_list("at", flat=True)[most - 1 : most].first()
    return rows if last is None else rows.filter(at__gte=last)


def _projects() -> QuerySet[Project]:
    return Project.objects.select_related("team__organisation").order_by(
        "team__organisation__name", "team__name", "name"
    )[:MOST_PROJECTS]


def _query(request: HttpRequest, *without: str) -> str:
    query = request.GET.copy()
    for name in without:
        query.pop(name, None)
    return query.urlencode()


def _lines(rows: Iterator[list[Any]]) -> Iterator[str]:
    """With a byte order mark: without one, some programs read it as Latin-1."""
    out = io.StringIO("\ufeff")
    out.seek(1)
    writer = csv.writer(out)
    for n, row in enumerate(rows):
        writer.writerow(row)
        if n % 500 == 0:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _share(part: int | None, whole: int | None) -> float | None:
    """Per cent; None where that is not known."""
    return 100 * part / whole if part is not None and whole else None
