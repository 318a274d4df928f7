"""Requests as pages show them: by day in the cluster's zone, by model, and one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from gateway.models import Usage
from llmgw.portal import days


@dataclass(frozen=True, slots=True)
class Used:
    """What was used in one day or of one model; `unknown` requests left no count of tokens."""

    label: Any
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    unknown: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


_SUMS = {
    "requests": Count("id"),
    "prompt": Sum("prompt_tokens", default=0),
    "completion": Sum("completion_tokens", default=0),
    "unknown": Count("id", filter=Q(prompt_tokens=None) | Q(completion_tokens=None)),
}


def by_day(rows: QuerySet[Usage], first: date, last: date, zone: ZoneInfo) -> list[Used]:
    """One entry a local day from `first` to `last`, days without requests too; no request is counted twice."""
    start, end = days.span(first, last, zone)
    found = (
        rows.filter(at__gte=start, at__lt=end)
        .order_by()
        .annotate(label=TruncDate("at", tzinfo=zone))
        .values("label")
        .annotate(**_SUMS)
    )
    used = {row["label"]: Used(**row) for row in found}
    return [used.get(day, Used(day)) for day in days.days(first, last)]


def by_model(rows: QuerySet[Usage], first: date, last: date, zone: ZoneInfo) -> list[Used]:
    """One entry a model, the most tokens first."""
    start, end = days.span(first, last, zone)
    found = rows.filter(at__gte=start, at__lt=end).order_by().values("model").annotate(**_SUMS)
    used = [Used(row.pop("model"), **row) for row in found]
    return sorted(used, key=lambda u: -u.tokens)
