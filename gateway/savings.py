"""What reuse saved, from the sums: answers given again, and prompts whose beginnings engines had read before."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from gateway.models import UsageHour

FIGURES = (
    "requests", "hits", "reused_tokens", "saved_answers", "prompt_tokens", "cached_tokens", "saved_prefixes",
)  # fmt: skip
_SUMS = {name: Sum(name, default=0) for name in FIGURES}


def by_model(project: str, days: int = 30) -> list[dict[str, Any]]:
    """Of one project (its public id), each model that answered in the last `days` days. Amounts are nano-units."""
    found: Any = _rows(days).filter(project=project).values("model").annotate(**_SUMS).order_by("-requests", "model")
    return list(found)


def by_project(days: int = 30) -> list[dict[str, Any]]:
    """Every project that saved anything, the most money first, then the most tokens. `project` is its public id."""
    found: Any = _rows(days).exclude(project="").values("project").annotate(**_SUMS).order_by()
    saved = [row for row in found if row["hits"] or row["cached_tokens"]]
    return sorted(saved, key=lambda r: (-money(r), -r["reused_tokens"] - r["cached_tokens"], r["project"]))


def by_day(days: int = 30) -> list[dict[str, Any]]:
    """Tokens that no engine worked on, in each of the last `days` days of the cluster's zone, oldest first."""
    rows: Any = _rows(days).annotate(day=TruncDate("at")).values("day").annotate(**_SUMS).order_by("day")
    found: dict[date, dict[str, Any]] = {row["day"]: row for row in rows}
    empty: dict[str, Any] = dict.fromkeys(FIGURES, 0)
    return [found.get(day) or {"day": day, **empty} for day in (_first(days) + timedelta(days=n) for n in range(days))]


def money(row: dict[str, Any]) -> int:
    return int(row["saved_answers"] + row["saved_prefixes"])


def total(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in FIGURES}


def _first(days: int) -> date:
    return timezone.localdate() - timedelta(days=days - 1)


def _rows(days: int) -> QuerySet[UsageHour]:
    midnight = timezone.make_aware(datetime.combine(_first(days), datetime.min.time()))
    return UsageHour.objects.filter(at__gte=midnight)
