"""Models: what people asked for, what runs of it, and why not."""

from __future__ import annotations

import time
from typing import Any

import yaml
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from catalog import selectors as catalog
from catalog.actions import life
from catalog.actions import models as actions
from catalog.core.definition import in_order
from catalog.core.writing import written
from fleet import selectors
from fleet.actions import purge as purging
from fleet.actions import resize, rollout
from llmgw import zones
from llmgw.cluster.actions import settings
from llmgw.cluster.errors import Invalid, NotFound
from llmgw.portal import confirm, fleet, listing, said, week
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
    replicas = [_aged(r, found.restarted_at) for r in selectors.replicas(model=found.name)]
    row = fleet.joined(catalog.row(found, catalog.serving(found), catalog.outside_keys(found)), replicas)
    definition = written(found.definition) if found.definition else None
    context = {
        "model": row,
        "why": why(found, row["state"], replicas),
        "replicas": replicas,
        "rolling": _rolling(replicas),
        "external": definition.get("external") if definition else None,
        "definition": yaml.safe_dump(definition, allow_unicode=True, sort_keys=False),
        "price": catalog.price(found),
        "entries": catalog.price_history(found)[:20],
        "events": selectors.events(model=found.name, limit=30),
        "measured": found.measured,
        **_served(found),
    }
    return render(request, "portal/models/one.html", context)


def _aged(replica: dict[str, Any], restarted_at: float | None) -> dict[str, Any]:
    """As to be replaced also where a restart was asked for since it came."""
    due = restarted_at is not None and replica["created_at"].timestamp() < restarted_at
    return {**replica, "stale": replica["stale"] or due}


def _rolling(replicas: list[dict[str, Any]]) -> tuple[int, int] | None:
    """(new ones that serve, how many there will be) while old ones are replaced; None: nothing is."""
    old = [r for r in replicas if r["stale"]]
    if not old:
        return None
    new = [r for r in replicas if not r["stale"]]
    return sum(r["state"] == "ready" for r in new), max(len(new), len(old))


def _served(found: catalog.Entry) -> dict[str, Any]:
    """What can be changed while it is served, and its week."""
    definition = found.definition
    if definition is None or definition.external is not None:
        return {}
    name = settings.time_zone(settings.in_force())
    return {
        "scaling": definition.scaling if found.origin == catalog.STORED else None,
        "scales": definition.scaling,
        "profiles": in_order(definition),
        "slots": next((p.run.parallel for p in definition.profiles if p.run.engine == "llamacpp"), None),
        "cards": [p.run for p in definition.profiles if p.run.gpus],
        "week": week.strips(definition.scaling, time.time(), zones.known(name)),
        "zone": name,
    }


@administrators
@require_POST
def change(request: HttpRequest, model: str) -> HttpResponse:
    """Stops, starts, scales, restarts or reshapes it; or takes it out of the catalog, once its name was typed."""
    actor = person(request).email
    match request.POST.get("what"):
        case "stop":
            name = actions.stop(name=model, actor=actor)
        case "start":
            name = actions.start(name=model, actor=actor)
        case "remove" | "purge" as what:
            return _remove(request, model, actor, purge=what == "purge")
        case "scale":
            name = life.scale(name=model, actor=actor, least=_whole(request, "min"), most=_whole(request, "max")).name
        case "restart" | "context" | "gpus" as what:
            begun = _change_shape(request, model, actor, what)
            messages.success(request, f"{begun.name}: {said.here(begun.sentence)}")
            return redirect("portal:models-one", model=begun.name)
        case other:
            raise Invalid("bad_change", f"a model is started, stopped, scaled, changed or removed, not {other!r}")
    messages.success(request, _("Done. It shows here as soon as the machines have moved."))
    return redirect("portal:models-one", model=name)


def _change_shape(request: HttpRequest, model: str, actor: str, what: str) -> rollout.Begun:
    in_place = "in_place" in request.POST
    if what == "restart":
        return rollout.restart(name=model, actor=actor, in_place=in_place)
    if what == "context":
        return resize.context(
            name=model, tokens=_whole(request, "tokens") or 0, slots=_whole(request, "slots"), actor=actor
        )
    profile = request.POST.get("profile") or None
    return resize.gpus(name=model, count=_whole(request, "count") or 0, profile=profile, in_place=in_place, actor=actor)


def _whole(request: HttpRequest, name: str) -> int | None:
    said = request.POST.get(name, "").strip()
    if not said:
        return None
    if not (said.isascii() and said.isdigit()):
        raise Invalid("bad_number", f"{name} is a whole number, and not {said[:40]!r}")
    return int(said)


def _remove(request: HttpRequest, model: str, actor: str, purge: bool = False) -> HttpResponse:
    if not confirm.named(request, model):
        back = reverse("portal:models-one", args=[model])
        what = _("%(name)s leaves the catalog: its definition goes and its replicas end. The weights stay.")
        if purge:
            what = _("%(name)s leaves the catalog, and nodes delete what they fetched for it.")
        return confirm.ask(request, name=model, what=what % {"name": model}, does=_("Remove the model"), back=back)
    try:
        if purge:
            purging.remove(name=model, actor=actor)
        else:
            actions.remove(name=model, actor=actor)
    except NotFound:  # sent twice
        messages.info(request, _("%(name)s was gone already.") % {"name": model})
    else:
        if purge:
            messages.success(request, _("%(name)s is removed; nodes delete what they fetched.") % {"name": model})
            return redirect("portal:models")
        messages.success(request, _("%(name)s is removed; its weights stay.") % {"name": model})
    return redirect("portal:models")
