"""Replicas: where each is, in which state and why, its life line, its last words, its log."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from fleet import selectors
from fleet.actions import replicas as actions
from llmgw.cluster.errors import Conflict, Invalid, NotFound
from llmgw.portal import fleet, listing
from llmgw.portal.fleet import Row
from llmgw.portal.gate import administrators, person
from llmgw.portal.logs import tail

COLUMNS = {
    "replica": "replica",
    "model": "model",
    "state": "state",
    "node": "node",
    "engine": "engine",
    "since": "-since",
}


@administrators
def replicas(request: HttpRequest) -> HttpResponse:
    def words(row: Row) -> str:
        return " ".join(str(row[k] or "") for k in ("replica", "model", "profile", "state", "reason", "node", "engine"))

    order = listing.sorting(request, COLUMNS)
    rows = listing.ordered(listing.matching(request, fleet.wrong_first(selectors.replicas()), words), order)
    return render(request, "portal/replicas/list.html", {"page": listing.page(request, rows), "sorting": order})


@administrators
def one(request: HttpRequest, replica: str) -> HttpResponse:
    """Its page; the life line stays when the replica itself is gone."""
    events = selectors.events(replica=replica)
    try:
        found = selectors.replica(replica)
    except NotFound:
        if not events:
            raise
        return render(request, "portal/replicas/gone.html", {"id": replica, "events": events})
    may = {"retry": found["state"] in actions.RETRIED, "restart": found["state"] in actions.RESTARTED}
    return render(request, "portal/replicas/one.html", {"r": found, "events": events, "may": may})


@administrators
@require_POST
def change(request: HttpRequest, replica: str) -> HttpResponse:
    """Restarts it or tries it again: the one that the page showed, so that a form sent twice does it once."""
    actor = person(request).email
    shown = request.POST.get("incarnation", "")
    incarnation = int(shown) if shown.isascii() and shown.isdigit() else None
    try:
        match request.POST.get("what"):
            case "restart":
                actions.restart(replica=replica, actor=actor, incarnation=incarnation)
            case "retry":
                actions.retry(replica=replica, actor=actor, incarnation=incarnation)
            case other:
                raise Invalid("bad_change", f"a replica is restarted or tried again, not {other!r}")
    except Conflict as e:
        if e.reason.code != "already_restarted":
            raise
        messages.info(request, _("It was started again already: this is how it stands."))
    else:
        messages.success(request, _("Done. It shows here as soon as the machines have moved."))
    return redirect("portal:replicas-one", replica=replica)


@administrators
def log(request: HttpRequest, replica: str) -> HttpResponse:
    """The engine's log on the node that it is on, as its last lines."""
    found = selectors.replica(replica)
    shard = next(iter(found["shards"]), None)
    answer = tail(shard["node"], {"shard_id": f"{replica}.{shard['rank']}"}) if shard else None
    return render(request, "portal/log.html", {"log": answer})
