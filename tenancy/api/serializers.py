"""The shapes of the tree in the API: rows as `tenancy.selectors` gives them, and what may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from tenancy.core.limits import PERIODS
from tenancy.models import Key, Membership


class Asked(serializers.Serializer[Any]):
    """A request's body: an unknown field is refused, not passed over."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = sorted(set(data) - set(self.fields))
            if unknown:
                known = ", ".join(sorted(self.fields))
                raise serializers.ValidationError(
                    {name: [f"there is no such field; there are {known}"] for name in unknown}
                )
        return super().to_internal_value(data)


class Allow(serializers.ListField):
    """Model names, not aliases; null: whatever the level above allows."""

    child = serializers.CharField(max_length=120)


class Limits(Asked):
    """Each binds the sum of everything below; null: nothing is said, 0: nothing is allowed."""

    rpm = serializers.IntegerField(allow_null=True, required=False, help_text="requests in any 60 seconds")
    tpm = serializers.IntegerField(allow_null=True, required=False, help_text="tokens in any 60 seconds")
    concurrent = serializers.IntegerField(allow_null=True, required=False, help_text="requests at once")
    budget = serializers.CharField(allow_null=True, required=False, help_text="a decimal, 250.00")
    period = serializers.ChoiceField(choices=PERIODS, allow_null=True, required=False, help_text="of the budget")


class Reuse(Asked):
    ttl_s = serializers.FloatField(help_text="how long an answer is given again")
    any = serializers.BooleanField(default=False, help_text="sampled answers too")
    similar = serializers.FloatField(allow_null=True, default=None, help_text="questions this alike too (cosine)")


class Keep(Asked):
    hours = serializers.FloatField()
    sample = serializers.FloatField(default=1.0, help_text="the share of requests that is kept")


class Tools(serializers.ListField):
    """Patterns like jira.*; null: nothing is said."""

    child = serializers.CharField(max_length=120)


class LevelTerms(serializers.Serializer[Any]):
    """What it says itself; what holds is narrowed by everything above (`/{id}/allowance`)."""

    limits = Limits()
    allow = Allow(allow_null=True)
    in_cluster = serializers.BooleanField(help_text="nothing of it leaves the cluster")
    no_store = serializers.BooleanField(help_text="nothing of it is kept")
    key_ttl_days = serializers.IntegerField(allow_null=True, help_text="the longest life of new keys")
    tools = Tools(allow_null=True)


class ProjectTerms(LevelTerms):
    weight = serializers.FloatField(help_text="its share against other projects' when requests wait")
    when_spent = serializers.CharField(allow_blank=True, help_text="the model that answers when a budget is spent")
    time_zone = serializers.CharField(allow_blank=True, help_text="by whose clock budgets begin; empty: the cluster's")
    reuse = Reuse(allow_null=True, help_text="answers are given again")
    keep = Keep(allow_null=True, help_text="requests are kept")


class KeyTerms(serializers.Serializer[Any]):
    limits = Limits()
    allow = Allow(allow_null=True)
    tools = Tools(allow_null=True)
    band = serializers.ChoiceField(choices=Key.Band.choices, help_text="who goes first when requests wait")


class OrganisationRow(LevelTerms):
    id = serializers.CharField()
    path = serializers.CharField()
    name = serializers.CharField()
    teams = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class TeamRow(LevelTerms):
    id = serializers.CharField()
    path = serializers.CharField(help_text="organisation/team")
    name = serializers.CharField()
    projects = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class ProjectRow(ProjectTerms):
    id = serializers.CharField()
    path = serializers.CharField(help_text="organisation/team/project")
    name = serializers.CharField()
    keys = serializers.IntegerField(help_text="live ones")
    created_at = serializers.DateTimeField()


class NewOrganisation(Asked):
    name = serializers.CharField()
    allow = Allow(allow_null=True, default=None)


class NewTeam(NewOrganisation):
    organisation = serializers.CharField(help_text="id or name")


class NewProject(NewOrganisation):
    team = serializers.CharField(help_text="id or organisation/team")


class LevelChange(Asked, LevelTerms):
    """What is named is changed, everything else stays as it is."""


class ProjectChange(Asked, ProjectTerms):
    """What is named is changed, everything else stays as it is."""


class KeyChange(Asked, KeyTerms):
    """What is named is changed, everything else stays as it is."""


class AllowanceLevel(serializers.Serializer[Any]):
    level = serializers.CharField()
    kind = serializers.ChoiceField(choices=["organisation", "team", "project", "key"])
    id = serializers.CharField()
    limits = Limits()


class Allowance(serializers.Serializer[Any]):
    level = serializers.CharField()
    levels = AllowanceLevel(many=True, help_text="outermost first; each one's limits bind by themselves")
    in_force = serializers.DictField(help_text="what the levels leave")


class MembershipRow(serializers.Serializer[Any]):
    level = serializers.CharField(help_text="organisation, organisation/team or organisation/team/project")
    role = serializers.ChoiceField(choices=Membership.Role.choices)


class PersonRow(serializers.Serializer[Any]):
    id = serializers.CharField()
    email = serializers.EmailField()
    name = serializers.CharField()
    administrator = serializers.BooleanField()
    active = serializers.BooleanField()
    must_change_password = serializers.BooleanField()
    memberships = MembershipRow(many=True)
    keys = serializers.IntegerField(help_text="live ones")
    last_login = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class PersonWithPassword(PersonRow):
    password = serializers.CharField(help_text="told this once")


class NewPerson(Asked):
    email = serializers.CharField()
    name = serializers.CharField(default="", allow_blank=True)
    administrator = serializers.BooleanField(default=False)


class PersonChange(Asked):
    administrator = serializers.BooleanField()


class NewMembership(Asked):
    level = serializers.CharField(help_text="organisation, organisation/team or organisation/team/project")
    role = serializers.ChoiceField(choices=Membership.Role.choices, default=Membership.Role.MEMBER)


class EndedMembership(Asked):
    level = serializers.CharField(help_text="organisation, organisation/team or organisation/team/project")


class KeyRow(KeyTerms):
    id = serializers.CharField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="what its owner recognises it by")
    state = serializers.ChoiceField(choices=["live", "expired", "revoked"])
    project = serializers.CharField()
    person = serializers.EmailField(allow_null=True)
    scope = serializers.ChoiceField(choices=Key.Scope.choices)
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class KeyWithSecret(KeyRow):
    key = serializers.CharField(help_text="told this once")


class NewKey(Asked):
    name = serializers.CharField()
    project = serializers.CharField(default="", allow_blank=True, help_text="id or path; the only one, if there is one")
    person = serializers.CharField(allow_null=True, default=None, help_text="e-mail address or id")
    scope = serializers.ChoiceField(choices=Key.Scope.choices, default=Key.Scope.INFERENCE)
    days = serializers.IntegerField(allow_null=True, default=None, help_text="null: as long as the settings allow")
    allow = Allow(allow_null=True, default=None)
    limits = Limits(required=False)
    band = serializers.ChoiceField(choices=Key.Band.choices, default=Key.Band.NORMAL)
