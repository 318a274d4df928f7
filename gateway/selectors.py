"""Reading the traffic: single requests, recent ones, use by day, and what goes on now. For commands, API, portal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from django.db.models import Q, QuerySet

from catalog.selectors import OutsideKey
from gateway import spending
from gateway.control.redis import client
from gateway.control.rollups import FAILED
from gateway.core import ids
from gateway.models import Usage
from llmgw.cluster.errors import Invalid, NotFound

LIVE = "llmgw:live:*"
SHOWN = (
    "request_id", "at", "endpoint", "model", "asked", "served", "stream", "outcome", "status", "code", "reason",
    "replica", "node", "route", "attempts", "hops", "prompt_tokens", "completion_tokens", "cached_tokens",
    "estimated", "cost", "cache", "queued_ms", "dispatched_ms", "ttft_ms", "duration_ms", "organisation", "team",
    "project", "key", "person", "session", "end_user", "tags", "edge",
)  # fmt: skip
_NEAR = timedelta(seconds=1)
_LISTED = (
    "request_id",
    "at",
    "model",
    "outcome",
    "status",
    "prompt_tokens",
    "completion_tokens",
    "ttft_ms",
    "duration_ms",
)


def request(request_id: str) -> dict[str, Any]:
    """Everything that is known of one request; raises `NotFound`."""
    row = _find(request_id)
    if row is None:
        raise NotFound(
            "no_such_request",
            f"there is no request {request_id}: its row comes about a second after its answer",
            "llmgw request list",
        )
    return {name: getattr(row, name) for name in SHOWN}


def recent(*, limit: int = 50, **given: Any) -> list[dict[str, Any]]:
    """The newest requests first; `given` as for `requests`."""
    return list(requests(**given).values(*_LISTED)[:limit])


ANY_FAILURE = "failed"
"""Whatever a model was to answer and nothing was answered, by any of the outcomes that say so."""


def requests(
    *,
    model: str | None = None,
    outcome: str | None = None,
    status: int | None = None,
    project: str | None = None,
    key: str | None = None,
    person: str | None = None,
    replica: str | None = None,
    session: str | None = None,
    tag: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: str | None = None,
) -> QuerySet[Usage]:
    """Rows, the newest first; each filter but `replica` and, on SQLite, `tag` (`feature`, `feature=search`) has an
    index. `outcome` may be `ANY_FAILURE`, too. `before` is the id of the last row of the page before: a page costs the
    same however far back it is. Raises `Invalid` for an id that is not there."""
    kind = None if outcome == ANY_FAILURE else outcome
    given = {"model": model, "outcome": kind, "project": project, "key": key, "person": person, "replica": replica}
    rows = Usage.objects.filter(**{name: value for name, value in given.items() if value})
    if outcome == ANY_FAILURE:
        rows = rows.filter(outcome__in=FAILED)
    if status is not None:
        rows = rows.filter(status=status)
    if (outcome and outcome != Usage.Outcome.OK) or (status is not None and status >= 400):
        rows = rows.exclude(outcome=Usage.Outcome.OK)  # as the indexes of what went wrong say it
    if session:
        rows = rows.filter(~Q(session=""), session=session)
    if tag:
        rows = spending.tagged(rows, tag)
    if since is not None:
        rows = rows.filter(at__gte=since)
    if until is not None:
        rows = rows.filter(at__lt=until)
    if before:
        last = _find(before)
        if last is None:
            raise Invalid("no_such_request", f"there is no request {before[:60]} to go on from")
        rows = rows.filter(Q(at__lt=last.at) | Q(request_id__lt=before), at__lte=last.at)
    return rows.order_by("-at", "-request_id")


def of(which: spending.Which) -> QuerySet[Usage]:
    """The rows behind some sums, the newest first."""
    return spending.single(which).order_by("-at", "-request_id")


def _find(request_id: str) -> Usage | None:
    """An id of ours begins with its time, so that one month is looked into; any other may be anywhere."""
    began_s = ids.began_s(request_id)
    if began_s is not None:
        began = datetime.fromtimestamp(began_s, UTC)
        near = Usage.objects.filter(at__gte=began - _NEAR, at__lte=began + _NEAR)
        if (row := near.filter(request_id=request_id).first()) is not None:
            return row
    return Usage.objects.filter(request_id=request_id).first()


def by_day(
    *,
    days: int = 30,
    person: str | None = None,
    project: str | None = None,
    key: str | None = None,
    model: str | None = None,
    now: datetime | None = None,
) -> list[dict[str, Any]]:
    """Use of each of the last `days` days in the current zone, oldest first, days without any too. Names are public
    ids; `model` is the one that answered. `cost` is in nano-units."""
    given = {"person": person, "project": project, "key": key, "model": model}
    return spending.by(spending.last_days(days, {n: value for n, value in given.items() if value}, now), "day")


def live() -> dict[str, Any] | None:
    """What goes on now, summed over the edges: `models` (in flight and totals by name), `tokens_per_s` by name,
    `edges`. None where no edge has reported within five seconds. Raises `redis.RedisError`."""
    found = _documents()
    if not found:
        return None
    models: dict[str, dict[str, int]] = {}
    rates: dict[str, float] = {}
    for document in found:
        for name, figures in document["models"].items():
            total = models.setdefault(name, {})
            for figure, value in figures.items():
                total[figure] = total.get(figure, 0) + value
        for name, rate in document["tokens_per_s"].items():
            rates[name] = rates.get(name, 0.0) + rate
    return {"edges": len(found), "models": models, "tokens_per_s": rates}


def _documents() -> list[dict[str, Any]]:
    """What each edge has told within the last seconds."""
    keys = list(client().scan_iter(LIVE, count=500))
    return [json.loads(data) for data in client().mget(keys) if data] if keys else []


_WORST = ("external_key_unreadable", "external_key_refused", "external_key_resting", "external_key_loose", "")


def outside() -> dict[str, tuple[OutsideKey, ...]]:
    """How each key of each external model stands, over the edges: the worst that one says; empty where none tells."""
    try:
        found = _documents()
    except redis.RedisError:
        return {}
    told: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for document in found:
        for model, keys in document.get("external", {}).items():
            for key in keys:
                told.setdefault(model, {}).setdefault(key["endpoint"], []).append(key)
    return {model: tuple(_outside_key(said) for said in keys.values()) for model, keys in told.items()}


def _outside_key(said: list[dict[str, Any]]) -> OutsideKey:
    worst = min(said, key=lambda k: _WORST.index(k["code"]))
    usable = any(k["code"] in ("", "external_key_loose", "external_key_resting") for k in said)
    return OutsideKey(worst["endpoint"], worst["code"], worst["sentence"], worst["since"], usable)
