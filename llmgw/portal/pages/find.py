"""Finding a page, model, node, replica or request by a few letters, as the pages' palette asks."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from catalog.models import Model
from fleet.models import Node, Replica
from gateway.models import Usage
from llmgw.fold import found_in
from llmgw.portal import menu
from llmgw.portal.gate import person
from tenancy.access import may_administer

MOST = 20


def find(request: HttpRequest) -> JsonResponse:
    """{"found": [{label, kind, url}]}, at most twenty; nothing of what the visitor may not open."""
    if not request.user.is_authenticated:
        return JsonResponse({"found": []}, status=401)
    query = request.GET.get("q", "").strip()[:80]
    found = [
        {"label": str(page.label), "kind": str(group.label), "url": reverse(f"portal:{page.name}")}
        for group in menu.for_person(request.user)
        for page in group.pages
        if found_in(query, f"{page.label} {group.label}")
    ]
    if query and may_administer(person(request)):
        found += _rows(query)
    return JsonResponse({"found": found[:MOST]})


def _rows(query: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for name in Model.objects.values_list("name", flat=True):
        if found_in(query, name):
            found.append({"label": name, "kind": _("model"), "url": reverse("portal:models-one", args=[name])})
    for name in Node.objects.values_list("node_id", flat=True):
        if found_in(query, name):
            found.append({"label": name, "kind": _("node"), "url": reverse("portal:nodes-one", args=[name])})
    for name, model in Replica.objects.filter(public_id__startswith=query).values_list("public_id", "model")[:MOST]:
        found.append(
            {"label": f"{name} {model}", "kind": _("replica"), "url": reverse("portal:replicas-one", args=[name])}
        )
    if query.startswith("req_"):
        for name in Usage.objects.filter(request_id__startswith=query).values_list("request_id", flat=True)[:MOST]:
            found.append({"label": name, "kind": _("request"), "url": reverse("portal:requests-one", args=[name])})
    return found
