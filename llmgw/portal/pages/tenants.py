"""The tree organisation, team, project: shown whole, grown by one form a level."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from llmgw.cluster.errors import NotFound, Refusal
from llmgw.portal import listing, said
from llmgw.portal.gate import administrators, person
from tenancy.actions import tree
from tenancy.models import Organisation, Project, Team

COLUMNS = {"project": "name", "keys": "-live_keys", "organisation": "path"}


class NewLevel(forms.Form):
    under = forms.ChoiceField(label=gettext_lazy("Under"), required=False)
    name = forms.CharField(label=gettext_lazy("Name"), max_length=80)

    def __init__(self, *args: Any, levels: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        under = self.fields["under"]
        assert isinstance(under, forms.ChoiceField)
        under.choices = [("", _("the top: an organisation")), *levels]


@administrators
def tenants(request: HttpRequest) -> HttpResponse:
    organisations = list(Organisation.objects.all())
    teams = list(Team.objects.select_related("organisation"))
    live = Count("keys", filter=Q(keys__revoked_at=None))
    projects = list(
        Project.objects.select_related("team__organisation")
        .annotate(live_keys=live)
        .order_by("team__organisation__name", "team__name", "name")
    )
    levels = [(f"organisation:{o.public_id}", o.name) for o in organisations]
    levels += [(f"team:{t.public_id}", f"{t.organisation.name}/{t.name}") for t in teams]
    form = NewLevel(request.POST or None, levels=sorted(levels, key=lambda level: level[1]))
    if request.method == "POST" and form.is_valid():
        try:
            _create(form.cleaned_data["under"], form.cleaned_data["name"], person(request).email)
        except Refusal as e:
            form.add_error(None, [said.here(p) for p in e.problems])
        else:
            messages.success(request, _("Made."))
            return redirect("portal:tenants")
    order = listing.sorting(request, COLUMNS)
    shown = listing.ordered(listing.matching(request, projects, lambda p: p.path), order)
    with_projects = {p.team_id for p in projects}
    with_teams = {t.organisation_id for t in teams}
    context = {
        "form": form,
        "page": listing.page(request, shown),
        "sorting": order,
        "empty_teams": [t for t in teams if t.pk not in with_projects],
        "empty_organisations": [o for o in organisations if o.pk not in with_teams],
    }
    return render(request, "portal/tenants.html", context)


def _create(under: str, name: str, actor: str) -> None:
    kind, _colon, public_id = under.partition(":")
    match kind:
        case "":
            tree.create_organisation(name=name, actor=actor)
        case "organisation":
            tree.create_team(organisation=_found(Organisation, public_id), name=name, actor=actor)
        case _:
            tree.create_project(team=_found(Team, public_id), name=name, actor=actor)


def _found(cls: Any, public_id: str) -> Any:
    found = cls.objects.filter(public_id=public_id).first()
    if found is None:
        raise NotFound("no_such_level", "what it should be under is gone: reload the page")
    return found
