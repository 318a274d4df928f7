"""Models: what people asked for, what runs of it, and why not."""

from __future__ import annotations

import yaml
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from catalog import selectors as catalog
from catalog.actions import models as actions
from fleet import selectors
from llmgw.cluster.errors import Invalid
from llmgw.portal import fleet, listing
from llmgw.portal.gate import administrators, person


@administrators
def models(request: HttpRequest) -> HttpResponse:
    def words(row: fleet.Row) -> str:
        return " ".join([row["name"], row["state"], *row["aliases"]])

    rows = listing.matching(request, fleet.models(selectors.replicas()), words)
    return render(request, "portal/models/list.html", {"page": listing.page(request, rows)})


@administrators
def one(request: HttpRequest, model: str) -> HttpResponse:
    found = catalog.entry(model)
    replicas = selectors.replicas(model=found.name)
    detail = catalog.detail(found)
    context = {
        "model": fleet.joined(catalog.row(found), replicas),
        "problems": found.problems,
        "replicas": replicas,
        "definition": yaml.safe_dump(detail.get("definition"), allow_unicode=True, sort_keys=False),
        "events": selectors.events(model=found.name, limit=30),
    }
    return render(request, "portal/models/one.html", context)


@administrators
@require_POST
def change(request: HttpRequest, model: str) -> HttpResponse:
    """Stops or starts it."""
    actor = person(request).email
    match request.POST.get("what"):
        case "stop":
            name = actions.stop(name=model, actor=actor)
        case "start":
            name = actions.start(name=model, actor=actor)
        case other:
            raise Invalid("bad_change", f"a model is started or stopped, not {other!r}")
    messages.success(request, _("Done. It shows here as soon as the machines have moved."))
    return redirect("portal:models-one", model=name)
