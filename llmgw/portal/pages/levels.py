"""A level of the tree, or a key: what it says, what holds there, what is left, and the form that changes it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from catalog import pricing
from catalog import selectors as catalog
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.settings import default_price
from llmgw.cluster.errors import Refusal
from llmgw.fold import fold
from llmgw.portal import left, said
from llmgw.portal.gate import administrators, person, signed_in
from llmgw.portal.limits_form import LimitsForm
from tenancy import access, allowances
from tenancy.actions import limits
from tenancy.models import Key, Organisation, Project, Team

_MOST = 200
"""What is below a level is listed up to here."""


@administrators
def of_tenants(request: HttpRequest, level: str) -> HttpResponse:
    return _page(request, access.level_for(request.user, level), own=False)


@signed_in
def of_account(request: HttpRequest, level: str) -> HttpResponse:
    return _page(request, access.level_for(request.user, level), own=True)


@signed_in
def of_key(request: HttpRequest, key: str) -> HttpResponse:
    return _page(request, access.key_for(person(request), key), own=True)


def _page(request: HttpRequest, holder: Organisation | Team | Project | Key, own: bool) -> HttpResponse:
    who = person(request)
    may = access.settable(who, holder)
    models = catalog.entries()
    names = [entry.name for entry in models]
    form = LimitsForm(request.POST or None, holder=holder, may=may, models=names)
    if request.method == "POST":
        access.require_settable(who, holder, form.may or ["limits"])
        if form.is_valid() and _changed(form, holder, who.email):
            messages.success(request, _("Done. It holds everywhere within two seconds."))
            return redirect(left.address(holder, own))
    path = allowances.levels(holder)
    holds = allowances.of(holder)["in_force"]
    context = {
        "holder": holder,
        "kind": allowances.kind(holder),
        "name": holder.name,
        "own": own,
        "trail": [(level.name, left.address(level, own)) for level in path[:-1]],
        "left": left.of(path, own),
        "holds": holds,
        "below": _below(holder, own, who),
        "form": form if may else None,
        "unpriced": _unpriced(models, holds["allow"])
        if any(level.limits.get("budget") is not None for level in path)
        else [],
        "priced": len(models),
        "unknown_model": holds.get("when_spent") and fold(holds["when_spent"]) not in _known(models),
    }
    return render(request, "portal/level.html", context)


def _changed(form: LimitsForm, holder: Any, actor: str) -> bool:
    try:
        limits.change(level=holder, limits=form.limits(), terms=form.terms(), actor=actor)
    except Refusal as e:
        form.add_error(None, [said.here(p) for p in e.problems])
        return False
    return True


def _unpriced(models: list[catalog.Entry], allow: list[str] | None) -> list[str]:
    """The models that cost nothing, of those that may be used: a budget never binds them."""
    now, standard = timezone.now().timestamp(), default_price(cluster_settings.in_force())
    found = []
    for entry in models:
        own = pricing.in_force(entry.prices, now)
        if (own.price if own is not None else standard).free and (allow is None or fold(entry.name) in allow):
            found.append(entry.name)
    return found


def _known(models: list[catalog.Entry]) -> set[str]:
    return {fold(name) for entry in models for name in entry.names}


def _below(holder: Organisation | Team | Project | Key, own: bool, who: Any) -> list[tuple[str, str]]:
    """What is in it and may be looked at, with its page."""
    match holder:
        case Organisation():
            rows: Any = Team.objects.filter(organisation=holder)
            if not who.is_superuser:
                rows = rows.filter(projects__in=access.projects_for(who)).distinct()
        case Team():
            rows = access.projects_for(who).filter(team=holder)
        case Project():
            rows = access.keys_for(who).filter(project=holder, revoked_at=None)
        case _:
            return []
    return [(row.name, left.address(row, own)) for row in rows.order_by("name")[:_MOST]]
