"""Notices: what people were to be told, what became of it at each webhook, and whether the webhooks answer."""

from __future__ import annotations

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from llmgw.cluster import notifying, webhooks
from llmgw.cluster.actions import notices as actions
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.notices import KINDS
from llmgw.cluster.errors import Refusal
from llmgw.cluster.models import Delivery, Notice
from llmgw.portal import listing, said
from llmgw.portal.gate import administrators, person
from llmgw.portal.words import NOTICES

COLUMNS = {"when": "-at", "what": "kind", "subject": "subject", "over": "-over_at"}


@administrators
def notices(request: HttpRequest) -> HttpResponse:
    rows = Notice.objects.prefetch_related("deliveries")
    query = request.GET.get("q", "").strip()
    if query:
        rows = rows.filter(Q(subject__icontains=query) | Q(message__icontains=query) | Q(kind__startswith=query))
    order = listing.sorting(request, COLUMNS)
    page = listing.page(request, listing.ordered_rows(rows, order))
    for row in page.object_list:
        row.word = NOTICES.get(row.kind, row.kind)
    context = {
        "page": page,
        "sorting": order,
        "standing": Notice.objects.filter(over_at=None).count(),
        "webhooks": _webhooks(),
        "kinds": [NOTICES[kind] for kind in KINDS],
    }
    return render(request, "portal/notices.html", context)


@administrators
@require_POST
def change(request: HttpRequest) -> HttpResponse:
    """A webhook more, or a test event to all."""
    try:
        if request.POST.get("what") == "add":
            row = actions.add_webhook(typed=request.POST.get("webhook", "").strip(), actor=person(request).email)
            _tell(request, notifying.try_out(only=row.id))
        else:
            _tell(request, notifying.try_out())
    except Refusal as e:
        messages.error(request, said.here(e.reason.sentence))
    return redirect("portal:notices")


def _webhooks() -> list[dict[str, object]]:
    """Each with what it answered last."""
    targets = webhooks.targets(cluster_settings.in_force().notify.webhooks)
    last = {}
    for target in targets:
        last[target.id] = Delivery.objects.filter(webhook=target.id).exclude(at=None).order_by("-at").first()
    return [
        {"target": t, "last": last[t.id], "events": [NOTICES.get(kind, kind) for kind in t.events]} for t in targets
    ]


def _tell(request: HttpRequest, rows: list[dict[str, object]]) -> None:
    for row in rows:
        answer = {"webhook": row["webhook"], "answer": said.here(row["answer"])}
        told = _("%(webhook)s answered the test event: %(answer)s") % answer
        messages.success(request, told) if row["good"] else messages.error(request, told)
