"""The facility: racks, rows, rooms, sites and PDUs with what they draw, hold and may draw."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from fleet import selectors
from fleet.actions import places as actions
from fleet.core.facility import KINDS
from llmgw.cluster.errors import Invalid
from llmgw.portal.gate import administrators, person


@administrators
def facility(request: HttpRequest) -> HttpResponse:
    found = selectors.places()
    heads = {"rack": _("Racks"), "row": _("Rows"), "room": _("Rooms"), "site": _("Sites"), "pdu": _("PDUs")}
    kinds = [(kind, heads[kind], [p for p in found if p["kind"] == kind]) for kind in KINDS]
    return render(request, "portal/facility.html", {"kinds": [k for k in kinds if k[2]]})


@administrators
@require_POST
def change(request: HttpRequest) -> HttpResponse:
    """Holds, releases or caps one place."""
    actor, kind, name = person(request).email, request.POST.get("kind", ""), request.POST.get("name", "")
    match request.POST.get("what"):
        case "hold":
            actions.hold(kind=kind, name=name, note=request.POST.get("note", "")[:200], actor=actor)
            messages.success(request, _("Nothing new is placed in %(name)s; what runs goes on.") % {"name": name})
        case "release":
            actions.release(kind=kind, name=name, actor=actor)
            messages.success(request, _("%(name)s takes replicas again.") % {"name": name})
        case "cap":
            actions.cap(kind=kind, name=name, watts=_watts(request.POST.get("kw", "").strip()), actor=actor)
            messages.success(request, _("The cap of %(name)s is changed; what runs goes on.") % {"name": name})
        case other:
            raise Invalid("bad_change", f"a place is held, released or capped, not {other!r}")
    return redirect("portal:facility")


def _watts(said: str) -> int | None:
    """Kilowatts as somebody typed them; nothing typed is no cap."""
    if not said:
        return None
    try:
        return round(float(said.replace(",", ".")) * 1000)
    except (ValueError, OverflowError):
        raise Invalid("bad_cap", f"a power cap is a number of kilowatts, or empty for none, and not {said!r}") from None
