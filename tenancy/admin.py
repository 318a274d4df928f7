"""The tree, its people and keys in Django's admin; and its door: allauth's sign-in, with limits and second factor."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from allauth.account.decorators import secure_admin_login
from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext_lazy as _

from llmgw.cluster.admin import ReadOnly, each
from tenancy.actions import keys, people
from tenancy.models import Key, Membership, Organisation, Person, Project, Team


def _change_password(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """The admin's own page would change a password past the rules of the portal's."""
    return redirect("account_change_password")


def _has_permission(request: HttpRequest) -> bool:
    return bool(request.user.is_active and getattr(request.user, "is_superuser", False))


admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]
admin.site.password_change = _change_password  # type: ignore[method-assign, assignment]
admin.site.has_permission = _has_permission  # type: ignore[method-assign]
admin.site.site_header = admin.site.site_title = "llmgw"
admin.site.index_title = _("Everything that is stored")


@admin.register(Person)
class PersonAdmin(ReadOnly):
    list_display = ("email", "name", "is_superuser", "is_active", "last_login", "created_at")
    list_filter = ("is_superuser", "is_active")
    search_fields = ("email", "name", "public_id")
    exclude = ("password", "groups", "user_permissions")
    actions = ("deactivate", "activate")

    @admin.action(description=_("Deactivate: end sessions, revoke keys"))
    def deactivate(self, request: HttpRequest, queryset: QuerySet[Person]) -> None:
        each(
            self, request, queryset, lambda p, actor: people.deactivate(person=p, actor=actor), _("{count} deactivated")
        )

    @admin.action(description=_("Activate"))
    def activate(self, request: HttpRequest, queryset: QuerySet[Person]) -> None:
        each(self, request, queryset, lambda p, actor: people.activate(person=p, actor=actor), _("{count} activated"))


@admin.register(Key)
class KeyAdmin(ReadOnly):
    list_display = ("prefix", "name", "project", "person", "scope", "limits", "band", "expires_at", "revoked_at")
    list_filter = ("scope", "band")
    list_select_related = ("project__team__organisation", "person")
    search_fields = ("prefix", "name", "public_id", "person__email")
    exclude = ("hash",)
    actions = ("revoke",)

    @admin.action(description=_("Revoke"))
    def revoke(self, request: HttpRequest, queryset: QuerySet[Key]) -> None:
        each(self, request, queryset, lambda k, actor: keys.revoke(key=k, actor=actor), _("{count} revoked"))


@admin.register(Organisation)
class OrganisationAdmin(ReadOnly):
    list_display = ("name", "public_id", "allow", "limits", "in_cluster", "no_store", "created_at")
    search_fields = ("name", "public_id")


@admin.register(Team)
class TeamAdmin(ReadOnly):
    list_display = ("name", "organisation", "public_id", "allow", "limits", "in_cluster", "no_store", "created_at")
    list_select_related = ("organisation",)
    search_fields = ("name", "public_id")


@admin.register(Project)
class ProjectAdmin(ReadOnly):
    list_display = ("name", "team", "public_id", "allow", "limits", "in_cluster", "no_store", "weight", "created_at")
    list_select_related = ("team__organisation",)
    search_fields = ("name", "public_id")


@admin.register(Membership)
class MembershipAdmin(ReadOnly):
    list_display = ("person", "role", "level")
    list_select_related = ("person", "organisation", "team__organisation", "project__team__organisation")
    list_filter = ("role",)


# allauth and Django bring pages with buttons to change these: ours are the actions, and a second factor's secret is
# shown to nobody. Imported here so that they are registered before they are replaced.
for _module in ("allauth.account.admin", "allauth.mfa.admin", "django.contrib.auth.admin"):
    import_module(_module)
for _theirs in (EmailAddress, EmailConfirmation, Authenticator, Group):
    if admin.site.is_registered(_theirs):
        admin.site.unregister(_theirs)


@admin.register(EmailAddress)
class EmailAddressAdmin(ReadOnly):
    list_display = ("email", "user", "primary", "verified")


@admin.register(Authenticator)
class AuthenticatorAdmin(ReadOnly):
    list_display = ("user", "type", "created_at", "last_used_at")
    exclude = ("data",)
