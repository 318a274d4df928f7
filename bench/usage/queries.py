"""What pages, commands and the ledger ask for, by name; each as they ask it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gateway import selectors, spending
from gateway.control import ledger, rollups
from gateway.core.snapshot import LevelLimits
from gateway.models import Usage
from tenancy.core.limits import Limits


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    run: Callable[[], Any]
    explain: Callable[[], str] | None = None
    """The store's plan, where it is one query of rows."""


def all_of(now: datetime) -> list[Query]:
    newest = selectors.requests()[:1].get().request_id
    middle = selectors.requests(until=now - timedelta(days=90))[:1].get().request_id
    month = spending.last_days(30, now=now)
    begins = datetime(now.year, now.month, 1, tzinfo=now.tzinfo).timestamp()
    budget = LevelLimits("organisation", "org-1", Limits(budget=1), f"{now:%Y-%m}", 0.0, begins)

    def page(**given: Any) -> Query:
        shown = {"before": "half the rows back", "session": "of one"}
        name = " ".join(f"{k} {shown.get(k, v)}" for k, v in given.items()) or "newest"
        rows = selectors.requests(**given)[:100]
        return Query(f"requests: {name}", lambda: list(rows.all()), rows.explain)

    def day() -> Any:
        return rollups.from_rows(now - timedelta(days=3), now - timedelta(days=2), 3600)

    return [
        Query("one request by its id", lambda: selectors.request(newest)),
        page(),
        page(before=middle),
        page(model="model-7"),
        page(project="project-7"),
        page(key="key-599"),
        page(person="person-399"),
        page(session=Usage.objects.exclude(session="").order_by("-at")[0].session),
        page(outcome="timed_out"),
        page(status=502),
        page(tag="feature=f29"),
        page(project="project-7", tag="feature=f29"),
        Query("usage page, 30 days, everybody by model", lambda: spending.days_by(month, "model")),
        Query("usage page, 90 days, everybody by project", lambda: spending.days_by(_of(90, now), "project")),
        Query("usage page, 30 days, one person", lambda: spending.days_by(_of(30, now, person="person-3"), "model")),
        Query("usage page, 90 days, one project", lambda: spending.days_by(_of(90, now, project="project-3"), "model")),
        Query("usage show --by key, 30 days", lambda: spending.by(month, "key")),
        Query("usage show --by tag:feature, 30 days, one project",
              lambda: spending.by(_of(30, now, project="project-3"), "tag:feature")),
        Query("usage show --by session, 7 days, one project",
              lambda: spending.by(_of(7, now, project="project-3"), "session")),
        Query("budget of an organisation from the rows", lambda: ledger.from_rows(budget)),
        Query("ledger verify, one day's rows summed up", day),
    ]  # fmt: skip


def _of(days: int, now: datetime, **who: str) -> spending.Which:
    return spending.last_days(days, who, now)
