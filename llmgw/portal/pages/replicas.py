"""Replicas: where each is, in which state and why, its life line, its last words, its log."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from fleet import selectors
from llmgw.cluster.errors import NotFound
from llmgw.portal import listing
from llmgw.portal.fleet import Row
from llmgw.portal.gate import administrators
from llmgw.portal.logs import tail


@administrators
def replicas(request: HttpRequest) -> HttpResponse:
    def words(row: Row) -> str:
        return " ".join(str(row[k] or "") for k in ("replica", "model", "profile", "state", "reason", "node", "engine"))

    rows = listing.matching(request, selectors.replicas(), words)
    return render(request, "portal/replicas/list.html", {"page": listing.page(request, rows)})


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
    return render(request, "portal/replicas/one.html", {"r": found, "events": events})


@administrators
def log(request: HttpRequest, replica: str) -> HttpResponse:
    """The engine's log on the node that it is on, as its last lines."""
    found = selectors.replica(replica)
    shard = next(iter(found["shards"]), None)
    answer = tail(shard["node"], {"shard_id": f"{replica}.{shard['rank']}"}) if shard else None
    return render(request, "portal/log.html", {"log": answer})
