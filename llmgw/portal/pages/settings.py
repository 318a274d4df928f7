"""The cluster's settings: the document in force, its defaults, its history, and the way back."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from llmgw.cluster.actions import settings as actions
from llmgw.cluster.core.settings import ClusterSettings
from llmgw.cluster.errors import Refusal
from llmgw.cluster.models import SettingsRevision
from llmgw.portal import said
from llmgw.portal.gate import administrators, person


class Document(forms.Form):
    """The document as YAML, with the version that it was made from: a save over a newer one is refused."""

    base = forms.IntegerField(widget=forms.HiddenInput)
    document = forms.CharField(
        label=gettext_lazy("What differs from the defaults, as YAML"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false", "class": "code-input", "translate": "no"}),
    )
    note = forms.CharField(label=gettext_lazy("Why"), max_length=200, required=False)

    def clean_document(self) -> dict[str, Any]:
        try:
            found = yaml.safe_load(self.cleaned_data["document"]) or {}
        except yaml.YAMLError as e:
            raise forms.ValidationError(
                _("This is not YAML: %(problem)s") % {"problem": " ".join(str(e).split())}
            ) from e
        if not isinstance(found, dict):
            raise forms.ValidationError(_("The document must hold names and values."))
        return found


@administrators
def settings(request: HttpRequest) -> HttpResponse:
    version, document = actions.current()
    form = Document(request.POST or None, initial={"base": version, "document": _yaml(document) if document else ""})
    if request.method == "POST" and form.is_valid():
        try:
            row = actions.save(
                document=form.cleaned_data["document"],
                base=form.cleaned_data["base"],
                actor=person(request).email,
                note=form.cleaned_data["note"],
            )
        except Refusal as e:
            form.add_error(None, [said.here(p) for p in e.problems])
        else:
            messages.success(request, _("Version %(version)d is in force.") % {"version": row.version})
            return redirect("portal:settings")
    context = {
        "form": form,
        "version": version,
        "defaults": _yaml(msgspec.to_builtins(ClusterSettings())),
        "history": [
            (row, _yaml(row.document) if row.document else "{}") for row in SettingsRevision.objects.all()[:30]
        ],
    }
    return render(request, "portal/settings.html", context)


@administrators
@require_POST
def rollback(request: HttpRequest, version: int) -> HttpResponse:
    row = actions.rollback(version=version, actor=person(request).email)
    messages.success(request, _("Version %(version)d is in force.") % {"version": row.version})
    return redirect("portal:settings")


def _yaml(document: Any) -> str:
    return yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
