"""Changes of what models cost: entries are added, and none is ever changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from agent.wire.reason import Reason
from catalog import pricing, selectors
from catalog.core import prices as core
from catalog.core.prices import WrittenPrice
from catalog.models import ModelPrice
from llmgw.cluster.actions import audit
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.changes import announce
from llmgw.cluster.core.settings import ClusterSettings
from llmgw.cluster.errors import Conflict, Invalid
from llmgw.fold import fold
from llmgw.price import Dated, Price
from llmgw.zones import known

_BEGINNING = datetime.fromtimestamp(0, UTC)


def enter(*, model: str, price: Price | None, actor: str, since: str = "", note: str = "") -> ModelPrice:
    """`model` costs `price` (None: the cluster's default) from `since` on (a day or a moment; empty: now). What was
    entered before stays, and counts until then. A declared model is `Conflict`: the settings say its price."""
    found = selectors.entry(model)
    if found.origin == selectors.DECLARED:
        raise Conflict(
            "declared_model",
            f"the model {found.name} is declared in the settings, and its price is set there",
            "llmgw config get models",
        )
    problems = list(core.problems(price)) if price is not None else []
    begins = _moment(since, cluster_settings.in_force()) if since else timezone.now()
    if isinstance(begins, Reason):
        problems.append(begins)
    if problems or isinstance(begins, Reason):
        raise Invalid.several(tuple(problems))
    with transaction.atomic():
        return _enter(found.name, price, begins, actor, note)


def laid_over(price: Price, figures: dict[str, Any], default: bool) -> Price | None:
    """What `enter` takes, of figures as people name them: what is not named stays as it is."""
    if default == bool(figures):
        raise Invalid(
            "bad_price", "say what it costs (prompt_per_1k, completion_per_1k, …) or that it is the default, not both"
        )
    return None if default else replace(price, **{core.FIGURES[name]: figure for name, figure in figures.items()})


def enter_written(*, name: str, written: Iterable[WrittenPrice], actor: str) -> bool:
    """What a definition says of the stored model `name` that does not count yet, as entries; whether there was any.
    Must be called in the transaction that stores the definition."""
    settings = cluster_settings.in_force()
    counting = pricing.of_stored(name, settings)
    new = list(_new(written, counting, settings))
    for price, since in new:
        # A model's first price holds from the beginning: no request is before it.
        _enter(name, price, since or (timezone.now() if counting else _BEGINNING), actor, "")
    return bool(new)


def differs(name: str, written: Iterable[WrittenPrice]) -> bool:
    """Whether `enter_written` would enter anything."""
    settings = cluster_settings.in_force()
    return bool(list(_new(written, pricing.of_stored(name, settings), settings)))


def _new(
    written: Iterable[WrittenPrice], counting: tuple[Dated, ...], settings: ClusterSettings
) -> Iterable[tuple[Price, datetime | None]]:
    begun = pricing.in_force(counting, timezone.now().timestamp())
    at = {p.since: p.price for p in counting}
    for said in written:
        since = _moment(said.since, settings) if said.since else None
        if isinstance(since, Reason):  # refused when it was read
            continue
        there = at.get(since.timestamp()) if since is not None else begun.price if begun else None
        if there != said.price:
            yield said.price, since


def _enter(name: str, price: Price | None, since: datetime, actor: str, note: str) -> ModelPrice:
    entry = ModelPrice.objects.create(
        model=fold(name),
        since=since,
        figures=None if price is None else core.figures(price),
        actor=actor[:200],
        note=note[:200],
    )
    audit.record(
        actor=actor, action="model.price", subject=name, since=since.isoformat(), price=entry.figures, note=note
    )
    announce("catalog")
    return entry


def _moment(since: str, settings: ClusterSettings) -> datetime | Reason:
    return core.moment(since, known(cluster_settings.time_zone(settings)))
