"""Machines: a table that says everything, one page each, a code for another one."""

from __future__ import annotations

from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from fleet import selectors
from fleet.actions import certificates, joining
from fleet.actions import nodes as actions
from fleet.models import Certificate
from fleet.selectors import machines
from llmgw.cluster.errors import Invalid, NotFound, Refusal
from llmgw.portal import confirm, fleet, listing, node_cards, said
from llmgw.portal.doctor import examine
from llmgw.portal.fleet import Row
from llmgw.portal.gate import administrators, person
from llmgw.portal.logs import tail

COLUMNS = {
    "node": "node",
    "state": "state",
    "cores": "-cpu_count",
    "memory": "-memory_free_bytes",
    "gpus": "-gpus",
    "replicas": "-replicas",
    "seen": "-last_seen",
}


class NewCode(forms.Form):
    node = forms.CharField(
        label=gettext_lazy("Node id"),
        max_length=64,
        required=False,
        help_text=gettext_lazy("Empty: the machine chooses. For a node that is there already: its id."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    portal = forms.CharField(
        label=gettext_lazy("Where the machine reaches this portal"),
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def clean_portal(self) -> str:
        address = str(self.cleaned_data["portal"]).rstrip("/")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise forms.ValidationError(_("This must be an address that begins with http:// or https://."))
        return address


@administrators
@never_cache
def nodes(request: HttpRequest) -> HttpResponse:
    """The list, and below it the form; a code that was just made is shown in the answer to its POST alone."""
    form = NewCode(request.POST or None, initial={"portal": settings.MACHINE.portal_url})
    made: joining.Made | None = None
    if request.method == "POST" and form.is_valid():
        asked = form.cleaned_data
        try:
            made = joining.make(node_id=asked["node"], portal=asked["portal"], actor=person(request).email)
        except Refusal as e:
            form.add_error(None, [said.here(p) for p in e.problems])

    def words(row: Row) -> str:
        return " ".join([row["node"], row["state"], *(f"{k}={v}" for k, v in row["labels"].items())])

    order = listing.sorting(request, COLUMNS)
    rows = listing.ordered(listing.matching(request, fleet.wrong_first(selectors.nodes()), words), order)
    context = {"page": listing.page(request, rows), "sorting": order, "form": form, "made": made}
    return render(request, "portal/nodes/list.html", context)


@administrators
def one(request: HttpRequest, node: str) -> HttpResponse:
    issued = Certificate.objects.filter(common_name=node)[:20]
    found = selectors.node(node)
    seen = machines.look()
    context = {
        "node": found,
        "cards": node_cards.rows([d for d in seen.devices if d.node == node]),
        "picture": node_cards.picture(
            [d for d in seen.devices if d.node == node],
            next((n.facts.rdma_ports or () for n in seen.nodes if n.id == node), ()),
        ),
        "islands": seen.fabrics.of_node(node),
        "place": found["location"],
        "certificates": [(c, _state(c)) for c in issued],
    }
    return render(request, "portal/nodes/one.html", context)


def _state(certificate: Certificate) -> str:
    if certificate.revoked_at is not None:
        return "revoked"
    return "expired" if certificate.not_after <= timezone.now() else "active"


@administrators
@require_POST
def change(request: HttpRequest, node: str) -> HttpResponse:
    """Cordons, uncordons or drains it; or forgets it, once its name was typed."""
    actor = person(request).email
    match request.POST.get("what"):
        case "cordon":
            actions.cordon(node_id=node, actor=actor)
            messages.success(request, _("Nothing new is placed on %(name)s; what runs goes on.") % {"name": node})
        case "uncordon":
            actions.uncordon(node_id=node, actor=actor)
            messages.success(request, _("%(name)s takes replicas again.") % {"name": node})
        case "drain":
            actions.drain(node_id=node, actor=actor)
            messages.success(request, _("What runs on %(name)s moves elsewhere, where there is room.") % {"name": node})
        case "engine":
            engine, build = str(request.POST.get("engine")), str(request.POST.get("build"))
            actions.engine_build(node_id=node, engine=engine, build=build, actor=actor)
            told = {"name": node, "engine": engine, "build": build}
            messages.success(request, _("%(name)s is told: %(engine)s, build %(build)s.") % told)
        case "remove":
            return _remove(request, node, actor)
        case other:
            raise Invalid(
                "bad_change", f"a node is cordoned, uncordoned, drained, removed or given an engine, not {other!r}"
            )
    return redirect("portal:nodes-one", node=node)


def _remove(request: HttpRequest, node: str, actor: str) -> HttpResponse:
    if not confirm.named(request, node):
        what = _("%(name)s goes with its certificates: its agent is refused from then on, until it joins again.")
        return confirm.ask(request, name=node, what=what % {"name": node}, does=_("Remove the node"), back=_page(node))
    try:
        actions.remove(node_id=node, actor=actor)
    except NotFound:  # sent twice
        messages.info(request, _("%(name)s was gone already.") % {"name": node})
    else:
        messages.success(request, _("%(name)s is removed, and its certificates are revoked.") % {"name": node})
    return redirect("portal:nodes")


def _page(node: str) -> str:
    return reverse("portal:nodes-one", args=[node])


@administrators
@require_POST
def revoke(request: HttpRequest, node: str, serial: str) -> HttpResponse:
    """Ends one certificate of the node, once the node's name was typed."""
    found = Certificate.objects.filter(common_name=node, serial=serial).first()
    if found is None:
        raise NotFound("no_such_certificate", f"{node} has no certificate {serial}", "llmgw cert list")
    if not confirm.named(request, node):
        what = _("The certificate ends for good: whoever dials in with it is cut off within seconds.")
        return confirm.ask(request, name=node, what=what, does=_("Revoke the certificate"), back=_page(node))
    try:
        certificates.revoke(which=serial, actor=person(request).email, reason="revoked in the portal")
    except NotFound:  # sent twice
        messages.info(request, _("The certificate was revoked already."))
    else:
        messages.success(request, _("The certificate is revoked."))
    return redirect("portal:nodes-one", node=node)


@administrators
def doctor(request: HttpRequest, node: str) -> HttpResponse:
    """What the node's agent finds wrong with its machine now."""
    return render(request, "portal/nodes/doctor.html", {"examination": examine(node)})


@administrators
def log(request: HttpRequest, node: str) -> HttpResponse:
    """The agent's log, as its last lines."""
    return render(request, "portal/log.html", {"log": tail(node, {"agent": True})})
