"""The catalog in Django's admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from catalog.actions import models
from catalog.models import Model, ModelName, ModelPrice, Unwanted
from llmgw.cluster.admin import ReadOnly, each


@admin.register(Model)
class ModelAdmin(ReadOnly):
    list_display = ("name", "origin", "stopped", "created_at", "changed_at")
    list_filter = ("origin", "stopped")
    search_fields = ("name",)
    actions = ("stop", "start")

    @admin.action(description=_("Stop: no replica until it is started"))
    def stop(self, request: HttpRequest, queryset: QuerySet[Model]) -> None:
        each(self, request, queryset, lambda m, actor: models.stop(name=m.name, actor=actor), _("{count} stopped"))

    @admin.action(description=_("Start"))
    def start(self, request: HttpRequest, queryset: QuerySet[Model]) -> None:
        each(self, request, queryset, lambda m, actor: models.start(name=m.name, actor=actor), _("{count} started"))


@admin.register(ModelName)
class ModelNameAdmin(ReadOnly):
    list_display = ("name", "model")
    list_select_related = ("model",)
    search_fields = ("name",)


@admin.register(ModelPrice)
class ModelPriceAdmin(ReadOnly):
    list_display = ("model", "since", "figures", "actor", "note", "created_at")
    search_fields = ("model",)


@admin.register(Unwanted)
class UnwantedAdmin(ReadOnly):
    list_display = ("source", "actor", "created_at")
    search_fields = ("source",)
