"""The audit log: who changed what, the newest first."""

from __future__ import annotations

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from llmgw.cluster.models import AuditEntry
from llmgw.portal import listing
from llmgw.portal.gate import administrators

COLUMNS = {"when": "-at", "who": "actor", "what": "action", "subject": "subject"}


@administrators
def audit(request: HttpRequest) -> HttpResponse:
    rows = AuditEntry.objects.all()
    query = request.GET.get("q", "").strip()
    if query:
        rows = rows.filter(Q(actor__icontains=query) | Q(action__startswith=query) | Q(subject__icontains=query))
    order = listing.sorting(request, COLUMNS)
    page = listing.page(request, listing.ordered_rows(rows, order))
    return render(request, "portal/audit.html", {"page": page, "sorting": order})
