"""What was used and what it cost, for pages, exports and the API: read from the sums by the hour.

Only by tag, session and end user are rows summed up: every value of these is the client's to make, so that sums of
them would be as many as requests. Their cost is as it was booked, without later corrections, which are about an hour
of somebody's use and not about one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Case, CharField, Count, F, Q, QuerySet, Sum, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import TruncDate, TruncHour
from django.utils import timezone

from gateway.control.rollups import FAILED, HITS, SUMS
from gateway.models import Usage, UsageHour
from llmgw.cluster.errors import Invalid
from tenancy.models import Key, Organisation, Person, Project, Team

WHO = ("organisation", "team", "project", "key", "person", "model")
PER_REQUEST = ("end-user", "session", "tag")
"""What only rows know."""
BY = ("day", "hour", *WHO, *PER_REQUEST)
EMPTY: dict[str, int] = dict.fromkeys(SUMS, 0)


@dataclass(frozen=True, slots=True)
class Which:
    """What is summed up: of when, and of whom. Names are public ids; an empty one means all."""

    since: datetime
    until: datetime
    """Not included."""
    organisation: str = ""
    team: str = ""
    project: str = ""
    key: str = ""
    person: str = ""
    model: str = ""
    """The one that answered."""
    tag: str = ""
    """`feature` or `feature=search`."""
    session: str = ""
    end_user: str = ""

    @property
    def per_request(self) -> bool:
        return bool(self.tag or self.session or self.end_user)


def last_days(days: int, who: Mapping[str, str] | None = None, now: datetime | None = None) -> Which:
    """The last `days` days of the current time zone, today included; `who` are further fields."""
    today = timezone.localtime(now or timezone.now()).date()
    return Which(midnight(today - timedelta(days=days - 1)), midnight(today + timedelta(days=1)), **(who or {}))


def midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, datetime.min.time()))


def total(which: Which) -> dict[str, int]:
    """The sums of all of it."""
    rows, sums = _source(which, which.per_request)
    return _figures(rows.aggregate(**sums))


def by(which: Which, what: str) -> list[dict[str, Any]]:
    """The sums for each `day`, `hour`, model, project, … (one of `BY`; `tag:feature` for the values of one tag).
    Days and hours come in their order, days without any too; all else with the most money first, then the most
    tokens. A request counts for each of its tags. Raises `Invalid`."""
    name, _, tag = what.partition(":")
    if name not in BY or (tag and name != "tag"):
        raise Invalid("bad_by", f"usage is told by {', '.join(BY)} or tag:NAME, and not by {what[:40]!r}")
    if name == "tag":
        return _ordered(_by_tag(which, tag), "tag")
    rows, sums = _source(which, which.per_request or name in PER_REQUEST)
    if name == "end-user":
        return _ordered(_grouped(rows.exclude(end_user=""), sums, "end-user", F("end_user")), "end-user")
    if name == "session":
        return _ordered(_grouped(rows.exclude(session=""), sums, "session", F("session")), "session")
    if name == "day":
        found = {row["day"]: row for row in _grouped(rows, sums, "day", TruncDate("at"))}
        return [found.get(day) or {"day": day, **EMPTY} for day in _days(which)]
    if name == "hour":
        return sorted(_grouped(rows, sums, "hour", TruncHour("at")), key=lambda row: row["hour"])
    return _ordered(_grouped(rows, sums, name, _group(rows, name)), name)


def days_by(which: Which, what: str, most: int = 7) -> tuple[list[date], dict[str, list[dict[str, int]]]]:
    """The days, and for each of the `most` models (or projects, …) with the most tokens its sums of each of them;
    those of all others together come under the empty name, where there are any."""
    rows, sums = _source(which, which.per_request)
    found = rows.annotate(g=_group(rows, what), d=TruncDate("at")).values("g", "d").annotate(**sums)
    days = list(_days(which))
    place = {day: i for i, day in enumerate(days)}
    each: dict[str, list[dict[str, int]]] = {}
    for row in found:
        each.setdefault(row["g"], [dict(EMPTY) for _ in days])[place[row["d"]]] = _figures(row)
    ordered = sorted(each, key=lambda g: (-sum(d["prompt_tokens"] + d["completion_tokens"] for d in each[g]), g))
    shown = {group: each[group] for group in ordered[:most]}
    if rest := ordered[most:]:
        shown[""] = [{name: sum(each[g][i][name] for g in rest) for name in SUMS} for i in range(len(days))]
    return days, shown


def tagged(rows: QuerySet[Usage], tag: str) -> QuerySet[Usage]:
    """Those with the tag `feature`, or with `feature=search`."""
    key, equals, value = tag.partition("=")
    if not equals:
        return rows.filter(tags__has_key=key)
    if connection.vendor == "postgresql":
        return rows.filter(~Q(tags={}), tags__contains={key: value})  # as the index says it
    return rows.alias(tag=KeyTransform(key, "tags")).filter(tag=value)


def single(which: Which) -> QuerySet[Usage]:
    """Single requests."""
    who = {name: value for name in WHO if (value := getattr(which, name))}
    model = who.pop("model", "")
    found = Usage.objects.filter(at__gte=which.since, at__lt=which.until, **who)
    if model:
        found = found.filter(Q(model=model, served="") | Q(served=model))
    if which.session:
        found = found.filter(~Q(session=""), session=which.session)
    if which.end_user:
        found = found.filter(end_user=which.end_user)
    return tagged(found, which.tag) if which.tag else found


def labels(what: str, ids: list[str]) -> dict[str, str]:
    """What people call `ids`, where they are not names as it is: paths, names of keys, e-mail addresses."""
    match what:
        case "organisation":
            found = {o.public_id: o.path for o in Organisation.objects.filter(public_id__in=ids)}
        case "team":
            teams = Team.objects.select_related("organisation").filter(public_id__in=ids)
            found = {t.public_id: t.path for t in teams}
        case "project":
            projects = Project.objects.select_related("team__organisation").filter(public_id__in=ids)
            found = {p.public_id: p.path for p in projects}
        case "key":
            found = {k.public_id: str(k) for k in Key.objects.filter(public_id__in=ids)}
        case "person":
            found = {p.public_id: p.email for p in Person.objects.filter(public_id__in=ids)}
        case _:
            return {}
    return {id: found.get(id, id) for id in ids}


def _source(which: Which, per_request: bool) -> tuple[QuerySet[Any], dict[str, Any]]:
    """The rows or the sums that are meant, and how they are added up."""
    who = {name: value for name in WHO if (value := getattr(which, name))}
    if not per_request:
        hours = UsageHour.objects.filter(at__gte=which.since, at__lt=which.until, **who)
        return hours.order_by(), {f"s_{name}": Sum(name, default=0) for name in SUMS}
    found = single(which)
    worked_on = ~Q(outcome=Usage.Outcome.REFUSED)
    again = Q(cache__in=HITS)
    no_count = Q(prompt_tokens=None) | Q(completion_tokens=None) & ~Q(endpoint="embeddings")
    return found.order_by(), {
        "s_requests": Count("pk"),
        "s_failed": Count("pk", filter=Q(outcome__in=FAILED)),
        "s_refused": Count("pk", filter=~worked_on),
        "s_uncounted": Count("pk", filter=worked_on & no_count),
        "s_estimated": Count("pk", filter=Q(estimated=True)),
        "s_hits": Count("pk", filter=again),
        "s_prompt_tokens": Sum("prompt_tokens", default=0),
        "s_completion_tokens": Sum("completion_tokens", default=0),
        "s_cached_tokens": Sum("cached_tokens", default=0),
        "s_reused_tokens": Sum("saved_tokens", filter=again, default=0),
        "s_saved_answers": Sum("saved", filter=again, default=0),
        "s_saved_prefixes": Sum("saved", filter=~again, default=0),
        "s_cost": Sum("cost", default=0),
        "s_unpriced": Count("pk", filter=worked_on & Q(cost=None)),
    }


def _grouped(rows: QuerySet[Any], sums: dict[str, Any], name: str, group: Any) -> list[dict[str, Any]]:
    found = rows.annotate(g=group).values("g").annotate(**sums)
    return [{name: row["g"], **_figures(row)} for row in found]


def _by_tag(which: Which, tag: str) -> list[dict[str, Any]]:
    """One look at each set of tags that there is."""
    rows, sums = _source(which, True)
    rows = tagged(rows, tag) if tag else rows.exclude(tags={})
    found: dict[str, dict[str, Any]] = {}
    for row in rows.values("tags").annotate(**sums).iterator(chunk_size=2000):
        figures = _figures(row)
        for key, value in row["tags"].items():
            if tag and key != tag:
                continue
            named = value if tag else f"{key}={value}"
            into = found.setdefault(named, {"tag": named, **EMPTY})
            for name in SUMS:
                into[name] += figures[name]
    return list(found.values())


def _ordered(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda r: (-r["cost"], -r["prompt_tokens"] - r["completion_tokens"], str(r[name])))


def _days(which: Which) -> Iterator[date]:
    day, last = (
        timezone.localtime(which.since).date(),
        timezone.localtime(which.until - timedelta(microseconds=1)).date(),
    )
    while day <= last:
        yield day
        day += timedelta(days=1)


def _group(rows: QuerySet[Any], name: str) -> Any:
    if name == "model" and rows.model is Usage:
        return Case(When(served="", then=F("model")), default=F("served"), output_field=CharField())
    return F(name)


def _figures(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(row[f"s_{name}"] or 0) for name in SUMS}
