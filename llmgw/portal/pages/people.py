"""Accounts: who may sign in, made here with a password that is shown once."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from llmgw.cluster.errors import Invalid, NotFound, Refusal
from llmgw.portal import listing, said
from llmgw.portal.gate import administrators, person
from tenancy.actions import people as actions
from tenancy.models import Person

COLUMNS = {
    "email": "email",
    "name": "name",
    "state": "is_active",
    "role": "-is_superuser",
    "keys": "-live_keys",
    "seen": "-last_login",
}


class NewPerson(forms.Form):
    email = forms.EmailField(label=gettext_lazy("E-mail"))
    name = forms.CharField(label=gettext_lazy("Name"), max_length=120, required=False)
    administrator = forms.BooleanField(label=gettext_lazy("Administrator of the cluster"), required=False)


@administrators
@never_cache
def people(request: HttpRequest) -> HttpResponse:
    form = NewPerson(request.POST or None)
    made: actions.NewPassword | None = None
    if request.method == "POST" and form.is_valid():
        try:
            made = actions.create(**form.cleaned_data, actor=person(request).email)
            form = NewPerson()
        except Refusal as e:
            form.add_error(None, [said.here(p) for p in e.problems])
    return _page(request, form, made)


@administrators
@never_cache
@require_POST
def change(request: HttpRequest, public_id: str) -> HttpResponse:
    """A new password, deactivated, or active again."""
    found = Person.objects.filter(public_id=public_id).first()
    if found is None:
        raise NotFound("no_such_person", "there is no such account", "llmgw user list")
    actor = person(request).email
    match request.POST.get("what"):
        case "reset":
            return _page(request, NewPerson(), actions.reset_password(person=found, actor=actor))
        case "deactivate":
            actions.deactivate(person=found, actor=actor)
        case "activate":
            actions.activate(person=found, actor=actor)
        case other:
            raise Invalid("bad_change", f"an account is reset, deactivated or activated, not {other!r}")
    messages.success(request, _("Done."))
    return redirect("portal:people")


def _page(request: HttpRequest, form: NewPerson, made: actions.NewPassword | None) -> HttpResponse:
    everybody = Person.objects.annotate(live_keys=Count("keys", filter=Q(keys__revoked_at=None)))
    rows = listing.matching(request, list(everybody), lambda p: f"{p.email} {p.name}")
    order = listing.sorting(request, COLUMNS)
    page = listing.page(request, listing.ordered(rows, order))
    return render(request, "portal/people.html", {"form": form, "made": made, "page": page, "sorting": order})
