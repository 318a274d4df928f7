"""Who somebody is here: name, roles, password, second factor, and the browsers that are signed in."""

from __future__ import annotations

from allauth.mfa.utils import is_mfa_enabled
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from llmgw.portal.gate import person, signed_in
from tenancy import sessions
from tenancy.models import Membership, Person


class Name(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Person
        fields = ("name",)
        labels = {"name": gettext_lazy("Name")}
        help_texts = {"name": gettext_lazy("What the pages call you.")}


@signed_in
def profile(request: HttpRequest) -> HttpResponse:
    who = person(request)
    form = Name(request.POST or None, instance=who)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, _("Saved."))
        return redirect("portal:profile")
    roles = Membership.objects.filter(person=who).select_related(
        "organisation", "team__organisation", "project__team__organisation"
    )
    context = {"form": form, "roles": roles, "second_factor": is_mfa_enabled(who)}
    return render(request, "portal/profile.html", context)


@signed_in
@require_POST
def end_sessions(request: HttpRequest) -> HttpResponse:
    """Every browser is signed out, this one too."""
    sessions.end_all(person(request))
    return redirect("account_login")
