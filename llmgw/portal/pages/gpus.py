"""The map of every card, and the table behind it; which of them is in the address, so that a view can be sent."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from fleet.core import cards
from fleet.core.devices import Device
from fleet.selectors import machines
from llmgw.portal import gpumap, listing
from llmgw.portal.gate import administrators

BOXES = 160
"""Nodes a page of the map."""
FILTERS = ("class", "model", "rack", "node")
COLUMNS = {
    "node": "node",
    "class": "gpu_class",
    "state": "state",
    "model": "model",
    "used": "-memory_used_bytes",
    "busy": "-busy_percent",
    "draw": "-power_w",
    "heat": "-temperature_c",
}


@administrators
def gpus(request: HttpRequest) -> HttpResponse:
    found = machines.look()
    asked = {name: request.GET.get(name, "").strip() for name in FILTERS}
    near = tuple(d for d in found.devices if asked["node"] in d.node)
    shown = machines.wanted(near, gpu_class=asked["class"], model=asked["model"], rack=asked["rack"])
    context: dict[str, Any] = {
        "asked": asked,
        "choices": _choices(found.devices),
        "heard": found.heard,
        "all": len(found.devices),
        "count": len(shown),
        "filtered": any(asked.values()),
    }
    if request.GET.get("view") == "table":
        order = listing.sorting(request, COLUMNS)
        rows = listing.ordered([machines.row(d) for d in shown], order)
        context |= {"page": listing.page(request, rows), "sorting": order}
        return render(request, "portal/gpus/table.html", context)
    mode = request.GET.get("mode", "work")
    page = Paginator(sorted({d.node for d in shown}), BOXES).get_page(request.GET.get("page"))
    names = set(page.object_list)
    drawn = gpumap.draw(
        mode if mode in gpumap.MODES else "work", [d for d in found.devices if d.node in names], found.devices
    )
    return render(request, "portal/gpus/map.html", context | {"map": drawn, "modes": gpumap.MODES, "page": page})


def _choices(devices: tuple[Device, ...]) -> list[tuple[str, str, list[str]]]:
    """(parameter, its words, what there is of it) for those that leave a choice."""
    found = (
        ("class", _("Class"), {cards.kind(d.gpu) for d in devices}),
        ("model", _("Model"), {d.work.model for d in devices if d.work is not None}),
        ("rack", _("Rack"), {d.rack for d in devices if d.rack}),
    )
    return [(name, words, sorted(values)) for name, words, values in found if values]
