"""Django's admin: every stored object may be looked at; changes go through the actions that everybody uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from llmgw.cluster.errors import Refusal
from llmgw.cluster.models import AuditEntry, Change, Delivery, Job, Lease, Notice, SettingsRevision, Store


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]  # at run time it takes none
    """A model as a list and a page. Administrators see it; there is no add, change or delete.

    A secret's column goes into `exclude`, or is shown by a method that cuts it.
    """

    list_per_page = 50
    show_full_result_count = False  # a count of all usage rows is not worth its query
    actions_on_bottom = False

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and getattr(request.user, "is_superuser", False))

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def each(
    admin_: ReadOnly,
    request: HttpRequest,
    rows: QuerySet[Any] | Iterable[Any],
    do: Callable[[Any, str], object],
    done: object,
) -> None:
    """Calls the action function for each row with the actor's name. `done` is said with its {count}, and each refusal
    in a message of its own."""
    count = 0
    actor = f"{getattr(request.user, 'email', request.user)} (Django admin)"
    for row in rows:
        try:
            do(row, actor)
            count += 1
        except Refusal as e:
            admin_.message_user(request, e.reason.sentence, messages.ERROR)
    if count:
        admin_.message_user(request, str(done).format(count=count), messages.SUCCESS)


@admin.register(SettingsRevision)
class SettingsRevisionAdmin(ReadOnly):
    list_display = ("version", "created_at", "actor", "note")


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    list_display = ("at", "actor", "action", "subject")
    list_filter = ("action",)
    search_fields = ("actor", "action", "subject")
    date_hierarchy = "at"


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_display = ("public_id", "kind", "subject", "state", "step", "actor", "updated_at")
    list_filter = ("state", "kind")


@admin.register(Lease)
class LeaseAdmin(ReadOnly):
    list_display = ("name", "holder", "term", "expires_at")


@admin.register(Change)
class ChangeAdmin(ReadOnly):
    list_display = ("name", "version", "changed_at")


@admin.register(Store)
class StoreAdmin(ReadOnly):
    list_display = ("store_id", "created_at")


@admin.register(Notice)
class NoticeAdmin(ReadOnly):
    list_display = ("at", "kind", "subject", "over_at", "told_at")
    list_filter = ("kind",)
    search_fields = ("subject",)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly):
    list_display = ("notice", "to", "state", "tries", "answer", "at")
    list_filter = ("state",)
