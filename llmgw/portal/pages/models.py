"""Models: what people asked for, what runs of it, and why not."""

from __future__ import annotations

import yaml
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from catalog import selectors as catalog
from catalog.actions import models as actions
from catalog.core.writing import written
from fleet import selectors
from llmgw.cluster.errors import Invalid, NotFound
from llmgw.portal import confirm, fleet, listing
from llmgw.portal.gate import administrators, person
from llmgw.portal.why import why

COLUMNS = {
    "model": "name",
    "state": "state",
    "ready": "-ready",
    "context": "-context_length",
    "weights": "source",
    "changed": "-changed_at",
}


@administrators
def models(request: HttpRequest) -> HttpResponse:
    def words(row: fleet.Row) -> str:
        return " ".join([row["name"], row["state"], *row["aliases"]])

    order = listing.sorting(request, COLUMNS)
    rows = listing.ordered(listing.matching(request, fleet.models(selectors.replicas()), words), order)
    return render(request, "portal/models/list.html", {"page": listing.page(request, rows), "sorting": order})


@administrators
def one(request: HttpRequest, model: str) -> HttpResponse:
    found = catalog.entry(model)
    replicas = selectors.replicas(model=found.name)
    row = fleet.joined(catalog.row(found, outside=catalog.outside_keys(found)), replicas)
    definition = written(found.definition) if found.definition else None
    context = {
        "model": row,
        "why": why(found, row["state"], replicas),
        "replicas": replicas,
        "external": definition.get("external") if definition else None,
        "definition": yaml.safe_dump(definition, allow_unicode=True, sort_keys=False),
        "price": catalog.price(found),
        "entries": catalog.price_history(found)[:20],
        "events": selectors.events(model=found.name, limit=30),
    }
    return render(request, "portal/models/one.html", context)


@administrators
@require_POST
def change(request: HttpRequest, model: str) -> HttpResponse:
    """Stops or starts it; or takes it out of the catalog, once its name was typed."""
    actor = person(request).email
    match request.POST.get("what"):
        case "stop":
            name = actions.stop(name=model, actor=actor)
        case "start":
            name = actions.start(name=model, actor=actor)
        case "remove":
            return _remove(request, model, actor)
        case other:
            raise Invalid("bad_change", f"a model is started, stopped or removed, not {other!r}")
    messages.success(request, _("Done. It shows here as soon as the machines have moved."))
    return redirect("portal:models-one", model=name)


def _remove(request: HttpRequest, model: str, actor: str) -> HttpResponse:
    if not confirm.named(request, model):
        back = reverse("portal:models-one", args=[model])
        what = _("%(name)s leaves the catalog: its definition goes and its replicas end. The weights stay.")
        return confirm.ask(request, name=model, what=what % {"name": model}, does=_("Remove the model"), back=back)
    try:
        actions.remove(name=model, actor=actor)
    except NotFound:  # sent twice
        messages.info(request, _("%(name)s was gone already.") % {"name": model})
    else:
        messages.success(request, _("%(name)s is removed; its weights stay.") % {"name": model})
    return redirect("portal:models")
