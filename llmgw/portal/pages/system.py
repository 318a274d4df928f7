"""The whole system stopped and started, from the overview."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from llmgw.cluster.actions import serving
from llmgw.cluster.errors import Invalid
from llmgw.portal import confirm
from llmgw.portal.gate import administrators, person

NAME = "system"
"""What is typed before everything stops."""


@administrators
@require_POST
def change(request: HttpRequest) -> HttpResponse:
    actor = person(request).email
    match request.POST.get("what"):
        case "start":
            serving.start(actor=actor)
            messages.success(request, _("The system is started: every model comes back as its definition asks."))
        case "stop":
            if not confirm.named(request, NAME):
                what = _("Every model is taken down, and every request is refused until somebody starts the system.")
                back = reverse("portal:cluster")
                return confirm.ask(request, name=NAME, what=what, does=_("Stop the system"), back=back)
            serving.stop(actor=actor, note=request.POST.get("note", "")[:200])
            messages.success(request, _("The system is stopped. Pages and machines go on."))
        case other:
            raise Invalid("bad_change", f"the system is stopped or started, not {other!r}")
    return redirect("portal:cluster")
