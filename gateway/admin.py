"""Traffic in Django's admin."""

from __future__ import annotations

from django.contrib import admin

from gateway.models import Usage
from llmgw.cluster.admin import ReadOnly


@admin.register(Usage)
class UsageAdmin(ReadOnly):
    list_display = ("request_id", "at", "model", "outcome", "status", "prompt_tokens", "completion_tokens", "ttft_ms")
    list_filter = ("outcome", "endpoint")
    search_fields = ("request_id", "model", "project", "key", "person", "replica")
    date_hierarchy = "at"
