"""A person's own keys: listed, made (the secret is shown once), revoked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.validators import MaxValueValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from gateway.control import parts
from gateway.core.snapshot import LevelLimits
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import Forbidden, Refusal
from llmgw.portal import left, listing, said
from llmgw.portal.gate import person, signed_in
from tenancy import access, allowances
from tenancy.actions import keys
from tenancy.core.tree import narrow_days
from tenancy.models import Key, Person, Project

_MOST_LEFT = 50
COLUMNS = {"name": "name", "used": "-last_used_at", "expires": "expires_at"}


class NewKey(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=80, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    project = forms.ChoiceField(label=gettext_lazy("Project"))
    days = forms.IntegerField(label=gettext_lazy("Lives for (days)"), min_value=1, max_value=3650, required=False)

    def __init__(self, *args: Any, person: Person, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.projects = {p.public_id: p for p in access.projects_for(person)}
        choice = self.fields["project"]
        assert isinstance(choice, forms.ChoiceField)
        choice.choices = [(p.public_id, p.path) for p in self.projects.values()]
        most = _longest_days(self.projects.values())
        days = self.fields["days"]
        assert isinstance(days, forms.IntegerField)
        if most is not None:
            days.validators.append(MaxValueValidator(most))
            days.widget.attrs["max"] = str(most)
            days.help_text = _("At most %(days)d; empty means as long as that.") % {"days": most}
        else:
            days.help_text = _("Empty: it does not expire.")


def _longest_days(projects: Iterable[Project]) -> int | None:
    """What any of them lets a key live; the one that is chosen may say less, and is asked then."""
    cluster = cluster_settings.in_force().keys.max_ttl_days
    said = [
        narrow_days(cluster, project.team.organisation.key_ttl_days, project.team.key_ttl_days, project.key_ttl_days)
        for project in projects
    ]
    return None if None in said else max((days for days in said if days is not None), default=cluster)


def state(key: Key) -> str:
    """active, revoked or expired."""
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= timezone.now():
        return "expired"
    return "active"


@signed_in
@never_cache
def account(request: HttpRequest) -> HttpResponse:
    """The list, and below it the form; a key that was just made is shown in the answer to its POST alone."""
    who = person(request)
    form = NewKey(request.POST or None, person=who)
    made: keys.NewKey | None = None
    if request.method == "POST" and form.is_valid():
        made = _create(form, who)
        if made is not None:
            form = NewKey(person=who)
    own = access.keys_for(who)
    everything = request.GET.get("all") == "1"
    if not everything:
        own = own.filter(revoked_at=None)
    if who.is_superuser and request.GET.get("whose") != "all":
        own = own.filter(person=who)
    order = listing.sorting(request, COLUMNS)
    rows = [(key, state(key)) for key in listing.ordered_rows(own, order)[:500]]
    context = {
        "form": form,
        "rows": rows,
        "made": made,
        "sorting": order,
        "everything": everything,
        "has_projects": bool(form.projects),
        "left": _left(who, [key for key, state in rows if state == "active"], list(form.projects.values())),
    }
    return render(request, "portal/account.html", context)


def _left(who: Person, active: list[Key], projects: list[Project]) -> list[left.Row]:
    """Of the keys, of every level above them or of a project of the person's, and of the chat, which has no key."""
    shown = active[:_MOST_LEFT]
    trees = [allowances.levels(project) for project in (*(key.project for key in shown), *projects[:_MOST_LEFT])]
    levels = {level.public_id: level for tree in trees for level in reversed(tree)}
    chat = LevelLimits("person", who.public_id, parts.chat_limits()) if projects else None
    return left.of(
        [*shown, *levels.values()], own=True, more=[(_("Chat, without a key"), chat)] if chat is not None else ()
    )


def _create(form: NewKey, who: Person) -> keys.NewKey | None:
    project = form.projects[form.cleaned_data["project"]]
    try:
        if not access.may_create_key(who, project, who):
            raise Forbidden("not_a_member", "you may not make keys in this project")
        return keys.create(
            project=project,
            name=form.cleaned_data["name"],
            days=form.cleaned_data["days"],
            person=who,
            actor=who.email,
        )
    except Refusal as e:
        form.add_error(None, [said.here(problem) for problem in e.problems])
        return None


@signed_in
@require_POST
def revoke(request: HttpRequest, key: str) -> HttpResponse:
    who = person(request)
    found = access.key_for(who, key)
    keys.revoke(key=found, actor=who.email)
    messages.success(request, _("The key “%(name)s” is revoked.") % {"name": found.name})
    return redirect("portal:account")
