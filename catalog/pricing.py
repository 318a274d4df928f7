"""What models cost: entries made over time for stored models, what the settings say for declared ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agent.wire.reason import Reason
from catalog.core.definition import Definition
from catalog.core.prices import FIGURES, Entered, from_figures, history, moment
from catalog.models import ModelPrice
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.settings import ClusterSettings, default_price
from llmgw.fold import fold
from llmgw.price import Dated, Price
from llmgw.zones import known


def histories(settings: ClusterSettings, **only: str) -> dict[str, tuple[Dated, ...]]:
    """Stored models' prices by the folded name: one query."""
    entered: dict[str, list[Entered]] = {}
    for row in ModelPrice.objects.filter(**only).order_by("id"):
        price = None if row.figures is None else from_figures(row.figures)
        entered.setdefault(row.model, []).append(Entered(price, row.since.timestamp(), row.created_at.timestamp()))
    return {name: history(entries, default_price(settings)) for name, entries in entered.items()}


def of_stored(name: str, settings: ClusterSettings) -> tuple[Dated, ...]:
    return histories(settings, model=fold(name)).get(fold(name), ())


def declared(definition: Definition, settings: ClusterSettings) -> tuple[Dated, ...]:
    """What a declared model's definition says, its days by the cluster's clock."""
    zone = known(cluster_settings.time_zone(settings))
    found = []
    for said in definition.prices:
        begins = moment(said.since, zone) if said.since else None
        if not isinstance(begins, Reason):
            found.append(Dated(said.price, begins.timestamp() if begins else 0.0))
    return tuple(sorted(found, key=lambda p: p.since))


def in_force(prices: tuple[Dated, ...], now: float) -> Dated | None:
    begun = [p for p in prices if p.since <= now]
    return max(begun, key=lambda p: p.since) if begun else None


def row(prices: tuple[Dated, ...], now: float) -> dict[str, Any]:
    """The price at `now` (Unix seconds): of `prices`, or the cluster's default. Micro-units."""
    own = in_force(prices, now)
    price = own.price if own is not None else default_price(cluster_settings.in_force())
    return {**_figures(price), "own": own is not None, "since": _at(own.since) if own else None}


def entries(name: str) -> list[dict[str, Any]]:
    """Every entry of a stored model, the latest to begin first; `default`: back to the cluster's default price."""
    standard = default_price(cluster_settings.in_force())
    return [
        {
            "since": entry.since,
            **_figures(standard if entry.figures is None else from_figures(entry.figures)),
            "default": entry.figures is None,
            "actor": entry.actor,
            "note": entry.note,
            "entered_at": entry.created_at,
        }
        for entry in ModelPrice.objects.filter(model=fold(name))
    ]


def as_declared(prices: tuple[Dated, ...]) -> list[dict[str, Any]]:
    """`entries` of a declared model."""
    said = {"default": False, "actor": "settings", "note": "", "entered_at": None}
    return [{"since": _at(p.since), **_figures(p.price), **said} for p in reversed(prices)]


def _figures(price: Price) -> dict[str, int | None]:
    return {name: getattr(price, field) for name, field in FIGURES.items()}


def _at(since: float) -> datetime | None:
    """None: from the beginning."""
    return datetime.fromtimestamp(since, UTC) if since else None
