"""Machines: a table that says everything, and one page each."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from fleet import selectors
from fleet.models import Certificate
from llmgw.portal import listing
from llmgw.portal.fleet import Row
from llmgw.portal.gate import administrators
from llmgw.portal.logs import tail


@administrators
def nodes(request: HttpRequest) -> HttpResponse:
    def words(row: Row) -> str:
        return " ".join([row["node"], row["state"], *(f"{k}={v}" for k, v in row["labels"].items())])

    rows = listing.matching(request, selectors.nodes(), words)
    return render(request, "portal/nodes/list.html", {"page": listing.page(request, rows)})


@administrators
def one(request: HttpRequest, node: str) -> HttpResponse:
    context = {"node": selectors.node(node), "certificates": Certificate.objects.filter(common_name=node)[:20]}
    return render(request, "portal/nodes/one.html", context)


@administrators
def log(request: HttpRequest, node: str) -> HttpResponse:
    """The agent's log, as its last lines."""
    return render(request, "portal/log.html", {"log": tail(node, {"agent": True})})
