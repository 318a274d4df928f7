"""The form for what a level or a key may say: only the fields that the person may set."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from llmgw.durations import seconds
from tenancy import allowances
from tenancy.core.limits import PERIODS
from tenancy.models import Key, Level

FIGURES = ("rpm", "tpm", "concurrent", "budget", "period")
NONE_AT_ALL = "-"
"""Written for an empty list, which allows nothing; an empty field says nothing."""
_LISTS = ("allow", "tools")
_WORDS = {
    "day": gettext_lazy("a day"),
    "week": gettext_lazy("a week"),
    "month": gettext_lazy("a month"),
    "total": gettext_lazy("in all"),
}


class LimitsForm(forms.Form):
    rpm = forms.IntegerField(label=gettext_lazy("Requests a minute"), min_value=0, required=False)
    tpm = forms.IntegerField(label=gettext_lazy("Tokens a minute"), min_value=0, required=False)
    concurrent = forms.IntegerField(label=gettext_lazy("Requests at once"), min_value=0, required=False)
    budget = forms.CharField(
        label=gettext_lazy("Budget"),
        max_length=40,
        required=False,
        help_text=gettext_lazy("Money, like 250 or 12.50. Empty: none of its own."),
    )
    period = forms.ChoiceField(label=gettext_lazy("The budget is for"), choices=[(p, _WORDS[p]) for p in PERIODS])
    in_cluster = forms.BooleanField(
        label=gettext_lazy("Nothing leaves the cluster: no model outside it answers, not even in need"), required=False
    )
    no_store = forms.BooleanField(
        label=gettext_lazy("Nothing is kept: no request, no answer to be given again"), required=False
    )
    key_ttl_days = forms.IntegerField(
        label=gettext_lazy("Longest life of new keys (days)"), min_value=1, required=False
    )
    allow = forms.CharField(label=gettext_lazy("Models allowed"), required=False)
    tools = forms.CharField(label=gettext_lazy("Tools allowed"), required=False)
    weight = forms.FloatField(
        label=gettext_lazy("Weight"),
        min_value=0.001,
        max_value=1000,
        help_text=gettext_lazy("Its share against other projects’ when requests wait."),
    )
    when_spent = forms.ChoiceField(
        label=gettext_lazy("When the budget is spent"),
        required=False,
        help_text=gettext_lazy("A cheaper model may answer instead."),
    )
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=64,
        required=False,
        help_text=gettext_lazy("By whose clock budgets begin, like Europe/Istanbul. Empty: the cluster’s."),
    )
    band = forms.ChoiceField(
        label=gettext_lazy("Band"),
        choices=Key.Band.choices,
        help_text=gettext_lazy("Who goes first when requests wait: interactive, then normal, then batch."),
    )
    reuse_ttl = forms.CharField(
        label=gettext_lazy("Answers are given again for"),
        max_length=20,
        required=False,
        help_text=gettext_lazy("A time, like 90s, 1h or 24h. Empty: every request is asked anew."),
    )
    reuse_any = forms.BooleanField(label=gettext_lazy("Sampled answers too, which would differ"), required=False)
    reuse_similar = forms.FloatField(
        label=gettext_lazy("Questions count as the same from a similarity of"),
        min_value=0.5,
        max_value=1,
        required=False,
        help_text=gettext_lazy("0.95 is strict. Empty: only the same request."),
    )
    keep_hours = forms.FloatField(label=gettext_lazy("Requests are kept for (hours)"), min_value=0.01, required=False)
    keep_sample = forms.FloatField(
        label=gettext_lazy("This share of them"), min_value=0.0001, max_value=1, required=False
    )

    def __init__(self, data: Any, *, holder: Level | Key, may: frozenset[str], models: list[str]) -> None:
        super().__init__(data, initial=_initial(holder))
        self.may = may
        for name in list(self.fields):
            if _said_by(name) not in may:
                del self.fields[name]
        for name in _LISTS:
            if name in self.fields:
                self.fields[name].help_text = _(
                    "Names with commas between them. Empty: what the level above says; - : none."
                )
        if "when_spent" in self.fields:
            choice = self.fields["when_spent"]
            assert isinstance(choice, forms.ChoiceField)
            said = self.initial["when_spent"]
            known = [*models, *([said] if said and said not in models else [])]
            choice.choices = [("", _("priced models are refused")), *((name, name) for name in known)]

    def limits(self) -> dict[str, Any]:
        """As `tenancy.actions.limits.change` takes them."""
        if "limits" not in self.may:
            return {}
        said = {name: self.cleaned_data[name] for name in FIGURES}
        said["budget"] = said["budget"].strip() or None
        return {**said, "period": said["period"] if said["budget"] is not None else None}

    def terms(self) -> dict[str, Any]:
        found = {name: self.cleaned_data[name] for name in self.fields if name in self.may}
        for name in _LISTS:
            if name in found:
                found[name] = _listed(found[name])
        if "reuse" in self.may:
            found["reuse"] = self._reuse()
        if "keep" in self.may:
            hours, sample = self.cleaned_data["keep_hours"], self.cleaned_data["keep_sample"]
            found["keep"] = None if hours is None else {"hours": hours, "sample": 1.0 if sample is None else sample}
        return found

    def clean_reuse_ttl(self) -> str:
        said: str = self.cleaned_data["reuse_ttl"].strip()
        if said and seconds(said) is None:
            raise forms.ValidationError(_("This is no time: write 90s, 1h or 24h."))
        return said

    def _reuse(self) -> dict[str, Any] | None:
        said = self.cleaned_data
        if not said["reuse_ttl"]:
            return None
        return {"ttl_s": seconds(said["reuse_ttl"]), "any": said["reuse_any"], "similar": said["reuse_similar"]}


def _said_by(field: str) -> str:
    """The name, among those that may be set, that a field belongs to."""
    if field in FIGURES:
        return "limits"
    return field.partition("_")[0] if field.startswith(("reuse_", "keep_")) else field


def _initial(holder: Level | Key) -> dict[str, Any]:
    terms = allowances.terms(holder)
    reuse, keep = terms.pop("reuse", None) or {}, terms.pop("keep", None) or {}
    return {
        **allowances.limits(holder),
        "period": allowances.limits(holder)["period"] or "month",
        **terms,
        **{name: _written(terms.get(name)) for name in _LISTS},
        "reuse_ttl": f"{reuse['ttl_s']:g}s" if reuse else "",
        "reuse_any": bool(reuse.get("any")),
        "reuse_similar": reuse.get("similar"),
        "keep_hours": keep.get("hours"),
        "keep_sample": keep.get("sample"),
    }


def _written(names: list[str] | None) -> str:
    return "" if names is None else ", ".join(names) or NONE_AT_ALL


def _listed(text: str) -> list[str] | None:
    text = text.strip()
    if not text:
        return None
    return [] if text == NONE_AT_ALL else [name.strip() for name in text.split(",") if name.strip()]
