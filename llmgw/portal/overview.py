"""The cluster page's parts: loaded once, rendered once a language, for the first paint and for whoever watches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Q
from django.template.loader import render_to_string
from django.utils import timezone, translation

from fleet.core import devices
from fleet.selectors import machines
from fleet.selectors.machines import Machines
from gateway.control.rollups import FAILED
from gateway.models import Usage
from llmgw.portal import capacity, fleet, traffic

PARTS = ("figures", "waiting", "capacity", "models", "nodes", "replicas", "requests")


@dataclass(frozen=True, slots=True)
class Overview:
    fleet: fleet.Fleet
    now: traffic.Now
    hour: dict[str, int]
    requests: list[Usage]
    machines: Machines
    asked: dict[str, datetime]
    """When each model was last asked for, within the hour."""
    at: datetime


def load() -> Overview:
    """Everything that the page shows, in a fixed number of queries and one look into Redis."""
    at = timezone.now()
    failed = Q(outcome__in=FAILED)
    by_model = (
        Usage.objects.filter(at__gte=at - timedelta(hours=1))
        .order_by()
        .values("model")
        .annotate(requests=Count("pk"), failed=Count("pk", filter=failed), last=Max("at"))
    )
    rows = list(by_model)
    hour = {name: sum(row[name] for row in rows) for name in ("requests", "failed")}
    asked = {row["model"]: row["last"] for row in rows}
    latest = list(Usage.objects.all()[:8])
    return Overview(fleet.load(), traffic.now(), hour, latest, machines.look(), asked, at)


def context(overview: Overview, *, live: bool) -> dict[str, Any]:
    """`live`: the browser writes the relative times, so that a part that stands still stays the same text."""
    by_model = overview.now.models or {}
    return {
        "live": live,
        "fleet": overview.fleet,
        "now": overview.now,
        "hour": overview.hour,
        "requests": overview.requests,
        "models": [(m, by_model.get(m["name"])) for m in overview.fleet.models],
        "classes": capacity.classes(overview.machines),
        "spreads": devices.spread(overview.machines.fabrics, overview.machines.devices),
        "idle": capacity.idle(
            overview.machines, overview.now.models, overview.fleet.models, overview.asked, overview.at
        ),
        "parts": PARTS,
    }


def render(overview: Overview, language: str) -> dict[str, str]:
    """Each part's HTML by its id."""
    with translation.override(language):
        given = context(overview, live=True)
        return {f"part-{p}": render_to_string(f"portal/cluster/{p}.html", given) for p in PARTS}


def stamp(overview: Overview) -> int:
    """Changes when something moved that pages of single nodes, replicas and models show."""
    shown = (
        overview.fleet.models,
        overview.fleet.replicas,
        [(n["node"], n["state"], n["replicas"]) for n in overview.fleet.nodes],
    )
    return hash(repr(shown))
