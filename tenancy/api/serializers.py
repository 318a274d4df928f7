"""The shapes of the tree in the API: rows as `tenancy.selectors` gives them, and what may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

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


class OrganisationRow(serializers.Serializer[Any]):
    id = serializers.CharField()
    path = serializers.CharField()
    name = serializers.CharField()
    allow = Allow(allow_null=True)
    teams = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class TeamRow(serializers.Serializer[Any]):
    id = serializers.CharField()
    path = serializers.CharField(help_text="organisation/team")
    name = serializers.CharField()
    allow = Allow(allow_null=True)
    projects = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class ProjectRow(serializers.Serializer[Any]):
    id = serializers.CharField()
    path = serializers.CharField(help_text="organisation/team/project")
    name = serializers.CharField()
    allow = Allow(allow_null=True)
    keys = serializers.IntegerField(help_text="live ones")
    created_at = serializers.DateTimeField()


class NewOrganisation(Asked):
    name = serializers.CharField()
    allow = Allow(allow_null=True, default=None)


class NewTeam(NewOrganisation):
    organisation = serializers.CharField(help_text="id or name")


class NewProject(NewOrganisation):
    team = serializers.CharField(help_text="id or organisation/team")


class LevelChange(Asked):
    allow = Allow(allow_null=True)


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


class KeyRow(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="what its owner recognises it by")
    state = serializers.ChoiceField(choices=["live", "expired", "revoked"])
    project = serializers.CharField()
    person = serializers.EmailField(allow_null=True)
    scope = serializers.ChoiceField(choices=Key.Scope.choices)
    allow = Allow(allow_null=True)
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
