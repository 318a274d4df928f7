"""What is in the catalog: stored models and those declared in the settings, as one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.utils import timezone

from agent.wire.reason import Reason
from catalog import pricing
from catalog.core import definition as core
from catalog.core import outside
from catalog.core.definition import Definition, Scaling
from catalog.core.prices import WrittenPrice
from catalog.core.reading import read
from catalog.core.writing import written
from catalog.models import Model, Unwanted
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.settings import ClusterSettings, default_price
from llmgw.cluster.errors import Invalid, NotFound
from llmgw.fold import fold
from llmgw.price import Dated, Price

DECLARED, STORED = Model.Origin.DECLARED.value, Model.Origin.STORED.value


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the catalog. `definition` None: it cannot be read, `problems` say why."""

    name: str
    origin: str
    definition: Definition | None
    stopped: bool = False
    problems: tuple[Reason, ...] = ()
    created_at: datetime | None = None
    changed_at: datetime | None = None
    prices: tuple[Dated, ...] = ()
    """Its own, by when they begin; without one in force the cluster's default holds."""
    restarted_at: float | None = None
    """Unix seconds: replicas from before then are replaced, if `in_place` each by one on what it held."""
    in_place: bool = False
    measured: dict[str, Any] = field(default_factory=dict)
    """By profile: what a replica was measured to carry."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it answers to."""
        return (self.name, *(self.definition.aliases if self.definition else ()))


@dataclass(frozen=True, slots=True)
class Serving:
    """How a model's replicas stand, as `fleet` knows it."""

    ready: int = 0
    state: str = ""
    reason: str = ""
    held_by: str = ""
    """The model that holds the card it waits for."""
    ready_at: float | None = None
    """When it should serve, in Unix seconds, while it starts or waits."""


@dataclass(frozen=True, slots=True)
class OutsideKey:
    """How a key of an external model stands, as the edges tell it (the worst, where they differ). `code` is empty
    while there is nothing to tell."""

    endpoint: str
    code: str = ""
    sentence: str = ""
    since: float | None = None
    """Unix seconds."""
    usable: bool = True
    """By some edge."""


@dataclass(slots=True)
class _Asked:
    serving: Callable[[], dict[str, Serving]] = field(default=dict)
    outside: Callable[[], dict[str, tuple[OutsideKey, ...]]] = field(default=dict)


_asked = _Asked()


def ask_serving_of(ask: Callable[[], dict[str, Serving]]) -> None:
    """Registers who knows how models are served (by name); called from an app's `ready()`. The catalog is below
    the fleet and cannot look itself."""
    _asked.serving = ask


def ask_outside_of(ask: Callable[[], dict[str, tuple[OutsideKey, ...]]]) -> None:
    """Registers who knows how external models' keys stand (by model); empty where nobody has told."""
    _asked.outside = ask


def entries() -> list[Entry]:
    """Every model by name, in three queries. A declared one whose names a stored one has is told as a problem."""
    settings = cluster_settings.in_force()
    rows = list(Model.objects.all())
    prices = pricing.histories(settings)
    found = [replace(e, prices=prices.get(fold(e.name), ())) for e in _stored_entries(rows)]
    taken = {fold(n): e.name for e in found for n in e.names}
    kept = {fold(row.name): row for row in rows if row.origin == DECLARED}
    for raw in settings.models:
        entry = declared(raw, taken)
        if entry.definition is not None:
            taken |= {fold(n): entry.name for n in entry.names}
            entry = replace(entry, prices=pricing.declared(entry.definition, settings))
        row = kept.get(fold(entry.name))
        found.append(entry if row is None else replace(entry, stopped=row.stopped, **_asked_of(row)))
    return sorted(found, key=lambda e: e.name)


def declared_problems(settings: ClusterSettings) -> list[Reason]:
    """What is wrong with the models that `settings` declare: asked before a revision is saved."""
    taken = {fold(n): e.name for e in _stored_entries(Model.objects.all()) for n in e.names}
    problems: list[Reason] = []
    definitions: list[Definition] = []
    for raw in settings.models:
        found = declared(raw, taken)
        problems.extend(found.problems)
        taken |= {fold(n): found.name for n in found.names}
        definitions += [found.definition] if found.definition is not None else []
    stored = [e.definition for e in _stored_entries(Model.objects.all()) if e.definition is not None]
    return [*problems, *outside.fallback_problems(definitions, [*stored, *definitions])]


def wanted() -> list[tuple[Definition, bool]]:
    """(definition, stopped) of every model that can be read: what the fleet keeps running."""
    return [(e.definition, e.stopped) for e in entries() if e.definition is not None]


def unwanted() -> list[str]:
    """Sources of models that were removed with their files, and that no model uses since."""
    return list(Unwanted.objects.values_list("source", flat=True))


def sources_of(definition: Definition) -> frozenset[str]:
    """Every source that some profile of it loads."""
    return frozenset(core.source_of(definition, profile)[0] for profile in definition.profiles)


def entry(name: str) -> Entry:
    """The model of that name or alias; raises `NotFound`."""
    all_entries = entries()
    for found in all_entries:
        if fold(name) in {fold(n) for n in found.names}:
            return found
    known = ", ".join(e.name for e in all_entries) or "none"
    raise NotFound("no_such_model", f"there is no model {name} in the catalog; there are: {known}", "llmgw model list")


def models() -> list[dict[str, Any]]:
    """For pages and commands: a row a model."""
    standing, found = _asked.serving(), entries()
    outside = _outside(found)
    return [row(e, standing.get(e.name), outside.get(e.name, ())) for e in found]


def row(found: Entry, serving: Serving | None = None, outside: tuple[OutsideKey, ...] = ()) -> dict[str, Any]:
    definition = found.definition
    return {
        "name": found.name,
        "state": _state(found, serving, outside),
        "reason": _reason(found, serving, outside),
        "external": definition is not None and definition.external is not None,
        "keys": [asdict(key) for key in outside],
        "fallbacks": list(definition.fallbacks) if definition else [],
        "ready": serving.ready if serving else None,
        "held_by": serving.held_by if serving else "",
        "ready_at": _moment(serving.ready_at) if serving else None,
        "on_demand": definition is not None and definition.scaling.min == 0 < definition.scaling.max,
        "wanted": 0 if found.stopped else (definition.scaling.min if definition else None),
        "aliases": list(definition.aliases) if definition else [],
        "kinds": list(definition.kinds) if definition else [],
        "context_length": definition.context_length if definition else None,
        "source": definition.source if definition else "",
        "origin": found.origin,
        "stopped": found.stopped,
        "created_at": found.created_at,
        "changed_at": found.changed_at,
    }


def detail(found: Entry) -> dict[str, Any]:
    """A row with the definition in the shape that people write."""
    return {
        **row(found, serving(found), outside_keys(found)),
        "problems": [p.sentence for p in found.problems],
        "definition": _written(found),
        "price": price(found),
    }


def serving(found: Entry) -> Serving | None:
    """How its replicas stand."""
    return _asked.serving().get(found.name)


def outside_keys(found: Entry) -> tuple[OutsideKey, ...]:
    """How the keys of an external model stand; empty where no edge has told."""
    return _outside([found]).get(found.name, ())


def price(found: Entry) -> dict[str, Any]:
    """What it costs now."""
    return {"model": found.name, **pricing.row(found.prices, timezone.now().timestamp())}


def price_history(found: Entry) -> list[dict[str, Any]]:
    """Every entry that was made of it, the latest to begin first."""
    return pricing.as_declared(found.prices) if found.origin == DECLARED else pricing.entries(found.name)


def price_now(found: Entry) -> Price:
    own = pricing.in_force(found.prices, timezone.now().timestamp())
    return own.price if own is not None else default_price(cluster_settings.in_force())


def _written(found: Entry) -> dict[str, Any] | None:
    """A stored model's price is shown with its definition, so that `change` takes back what `show` gave."""
    if found.definition is None:
        return None
    own = pricing.in_force(found.prices, timezone.now().timestamp())
    if found.origin == DECLARED or own is None:
        return written(found.definition)
    return written(replace(found.definition, prices=(WrittenPrice(own.price),)))


def declared(raw: dict[str, Any], taken: dict[str, str]) -> Entry:
    """A model as the settings declare it; `taken` says whose the folded names are that others have."""
    try:
        definition = read(raw)
    except Invalid as e:
        return Entry(str(raw.get("name", "?"))[:120], DECLARED, None, problems=e.problems)
    clashes = [n for n in (definition.name, *definition.aliases) if fold(n) in taken]
    if clashes:
        sentence = f"model {definition.name}: the name {clashes[0]} is already of the model {taken[fold(clashes[0])]}"
        return Entry(definition.name, DECLARED, None, problems=(Reason("name_taken", sentence),))
    return Entry(definition.name, DECLARED, definition)


def _stored_entries(rows: Iterable[Model]) -> list[Entry]:
    return [_stored(row) for row in rows if row.origin == STORED]


def _stored(row: Model) -> Entry:
    try:
        definition = core.from_builtins(row.definition)
    except msgspec.ValidationError as e:
        problem = Reason("bad_definition", f"model {row.name} was stored by another version and cannot be read: {e}")
        return Entry(row.name, STORED, None, row.stopped, (problem,), row.created_at, row.changed_at)
    found = Entry(row.name, STORED, definition, row.stopped, (), row.created_at, row.changed_at)
    return replace(found, **_asked_of(row))


def _asked_of(row: Model) -> dict[str, Any]:
    rollout = row.rollout or {}
    return {
        "restarted_at": rollout.get("at"),
        "in_place": bool(rollout.get("in_place")),
        "measured": row.measured or {},
    }


def _outside(found: Iterable[Entry]) -> dict[str, tuple[OutsideKey, ...]]:
    """Asked only where there is an external model."""
    wanted = any(e.definition is not None and e.definition.external is not None for e in found)
    return _asked.outside() if wanted else {}


def _reason(found: Entry, serving: Serving | None, outside: tuple[OutsideKey, ...]) -> str:
    if found.problems:
        return found.problems[0].sentence
    return "; ".join(k.sentence for k in outside if k.code) or (serving.reason if serving else "")


def _moment(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at is not None else None


def _state(found: Entry, serving: Serving | None, outside: tuple[OutsideKey, ...]) -> str:
    if found.definition is None:
        return "invalid"
    if found.stopped:
        return "stopped"
    if found.definition.external is not None:
        return "no usable key" if outside and not any(k.usable for k in outside) else "serving"
    if found.definition.scaling == Scaling(0, 0):
        return "not running"
    return serving.state if serving else "unknown"
