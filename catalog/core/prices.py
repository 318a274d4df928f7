"""A model's price as people write it, and which of the entries made over time counts when. Pure.

An entry is never changed: what is corrected is entered again, from the same moment on or a later one, and the latest
entry for a moment counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from typing import Any

from agent.wire.reason import Reason
from catalog.core.fields import Fields
from llmgw.price import Dated, Price

MOST = 10**9
"""Micro-units: a thousand units per 1 000 tokens is a slip of the hand."""
FIGURES = {
    "prompt_per_1k": "prompt",
    "cached_per_1k": "cached",
    "completion_per_1k": "completion",
    "per_image": "image",
    "per_mesh": "mesh",
}
"""How people write a field of `Price`."""


@dataclass(frozen=True, slots=True)
class WrittenPrice:
    """A price of a definition. `since` is a day or a moment in ISO's form, by the cluster's clock where it names no
    zone; empty: from the beginning (of a stored model: from when it was written)."""

    price: Price
    since: str = ""


@dataclass(frozen=True, slots=True)
class Entered:
    """An entry of a stored model. `price` None: the cluster's default from then on. Unix seconds."""

    price: Price | None
    since: float
    at: float


def history(entries: Iterable[Entered], default: Price) -> tuple[Dated, ...]:
    """What counts, by when it begins."""
    latest: dict[float, Entered] = {}
    for entry in sorted(entries, key=lambda e: e.at):
        latest[entry.since] = entry
    return tuple(Dated(e.price or default, e.since) for _, e in sorted(latest.items()))


def figures(price: Price) -> dict[str, int]:
    """As people write it. Pictures and meshes are left out where they cost nothing."""
    found = {name: getattr(price, field) for name, field in FIGURES.items()}
    return {name: f for name, f in found.items() if f or (f is not None and not name.startswith("per_"))}


def from_figures(found: Mapping[str, int | None]) -> Price:
    """What `figures` wrote."""
    return Price(**{FIGURES[name]: figure for name, figure in found.items()})  # type: ignore[arg-type]


def problems(price: Price) -> tuple[Reason, ...]:
    """Everything that keeps `price` from being one."""
    found = []
    for name, field in FIGURES.items():
        figure = getattr(price, field)
        if figure is not None and not 0 <= figure <= MOST:
            found.append(Reason("bad_price", f"{name} must be between 0 and {MOST} micro-units, and is {figure}"))
    return tuple(found)


def moment(since: str, zone: tzinfo) -> datetime | Reason:
    """When a price begins that was written with `since`."""
    try:
        found = datetime.fromisoformat(since)
    except ValueError:
        return Reason("bad_since", f"a price begins at a day or a moment like 2026-12-01, and not at {since[:60]!r}")
    if not 2000 <= found.year <= 2200:
        return Reason("bad_since", f"a price begins between the years 2000 and 2200, and not in {found.year}")
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def read(fields: Fields) -> tuple[WrittenPrice, ...]:
    """`price`, or `prices` with a `since` each, of a definition."""
    written = fields.take("price"), fields.take("prices")
    if written == (None, None):
        return ()
    if None not in written:
        fields.problem("say price, or prices with since each, and not both")
        return ()
    if written[0] is not None:
        one = fields.table("price")
        price = _price(one)
        one.done()
        return (WrittenPrice(price),)
    found = []
    for inner in fields.tables("prices"):
        since = _since(inner)
        found.append(WrittenPrice(_price(inner), since))
        inner.done()
    if len({w.since for w in found}) != len(found):
        fields.problem("two prices begin at the same moment")
    return tuple(found)


def written(prices: tuple[WrittenPrice, ...]) -> dict[str, Any]:
    """The definition's key that `read` reads."""
    if not prices:
        return {}
    if len(prices) == 1 and not prices[0].since:
        return {"price": figures(prices[0].price)}
    return {"prices": [{**({"since": w.since} if w.since else {}), **figures(w.price)} for w in prices]}


def _price(fields: Fields) -> Price:
    return from_figures({name: fields.whole(name, None if name == "cached_per_1k" else 0, 0, MOST) for name in FIGURES})


def _since(fields: Fields) -> str:
    value = fields.take("since")
    if value is None:
        return ""
    text = value.isoformat() if isinstance(value, (date, datetime)) else str(value)
    found = moment(text, UTC)
    if isinstance(found, Reason):
        fields.problem(found.sentence, found.code)
        return ""
    return text
