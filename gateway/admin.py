"""Traffic in Django's admin: no page of it looks at all rows."""

from __future__ import annotations

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

from gateway.models import KeptRequest, Usage, UsageCorrection, UsageHour
from llmgw.cluster.admin import ReadOnly

_MOST = 5000


class FirstPages(Paginator):  # type: ignore[type-arg]
    """Pages of the first few thousand rows: counting all of them would read all of them."""

    @cached_property
    def count(self) -> int:
        assert isinstance(self.object_list, QuerySet)
        return self.object_list[:_MOST].count()


@admin.register(Usage)
class UsageAdmin(ReadOnly):
    list_display = ("request_id", "at", "model", "outcome", "status", "prompt_tokens", "completion_tokens", "ttft_ms")
    list_filter = ("outcome",)
    search_fields = ("=request_id", "=model", "=project", "=key", "=person")
    date_hierarchy = "at"
    paginator = FirstPages


@admin.register(UsageHour)
class UsageHourAdmin(ReadOnly):
    list_display = ("at", "project", "key", "person", "model", "requests", "prompt_tokens", "completion_tokens", "cost")
    search_fields = ("=model", "=project", "=key", "=person")
    date_hierarchy = "at"
    ordering = ("-at",)
    paginator = FirstPages


@admin.register(UsageCorrection)
class UsageCorrectionAdmin(ReadOnly):
    list_display = ("made_at", "actor", "reason", "at", "model", "project", "requests", "delta")
    search_fields = ("=model", "=project", "=actor")


@admin.register(KeptRequest)
class KeptRequestAdmin(ReadOnly):
    """That it is kept, not what it says: that has its own page."""

    list_display = ("request_id", "at", "project", "model", "request_bytes", "answer_bytes")
    search_fields = ("=request_id", "=project", "=model")
    exclude = ("request", "answer")
    paginator = FirstPages
