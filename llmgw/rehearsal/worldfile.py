"""A world file: racks of pretended machines, models, traffic and faults, read whole with every problem named. Pure.

See docs/rehearsal.md for the format and docs/rehearsal/*.yaml for examples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.engines import ENGINES
from agent.rehearsal.figures import Weights
from agent.rehearsal.hardware import MIG, TEMPLATES, Cut, Template, Wish, facts, slices
from agent.rehearsal.values import PretendedNode
from agent.wire.reason import Reason
from catalog.core import reading
from catalog.core.definition import Definition
from catalog.core.fields import GIB, Fields
from llmgw.cluster.core import settings as core_settings
from llmgw.cluster.core.sections import BadSettings
from llmgw.cluster.errors import Invalid
from llmgw.rehearsal import faults as core_faults
from llmgw.rehearsal.faults import Fault
from llmgw.rehearsal.pure.shape import Curve

MOST_NODES = 10_000
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
DEFAULT_SETTINGS: dict[str, Any] = {
    "fleet.heartbeat_s": 1.0,
    "fleet.node_lost_s": 12.0,
    "fleet.drain_s": 1.0,
    "fleet.backoff_first_s": 0.5,
    "limits.default_rpm": None,
    "limits.default_tpm": None,
}
"""Of a rehearsal's own cluster, so that a bad day takes minutes. The world's `settings` lie over them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Machines of one kind. `racks` 0: no rack is told; else they stand in so many, in turn."""

    template: Template
    ids: tuple[str, ...]
    labels: dict[str, str]
    rack: str
    racks: int
    fabric: str
    cuts: tuple[Cut, ...]
    engines: tuple[str, ...]
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PretendedModel:
    raw: dict[str, Any]
    """Its definition as it was written."""
    definition: Definition
    weights: Weights
    demand: Curve | None = None
    """How it is asked for over a pretended week (`llmgw rehearse week`)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests a second over all of `models`; tokens of prompts and answers; the share that is streamed."""

    rate: float
    models: tuple[str, ...]
    prompt_tokens: int = 100
    answer_tokens: int = 30
    streamed: float = 0.5


@dataclass(frozen=True, slots=True)
class World:
    name: str
    groups: tuple[Group, ...]
    models: tuple[PretendedModel, ...]
    faults: tuple[Fault, ...] = ()
    traffic: Traffic | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    bound_s: float = 60.0
    """After each fault, within so long everything must be as it should be."""
    load_speed: float = 10.0
    answer_speed: float = 1.0
    processes: int = 1
    join_within_s: float = 0.0
    store_restart: str = ""
    seed: int = 0

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(i for g in self.groups for i in g.ids)

    def model(self, name: str) -> PretendedModel:
        return next(m for m in self.models if m.definition.name == name)

    def nodes(self, network: int) -> tuple[PretendedNode, ...]:
        """Every machine, each at an address of its own in 127.`network`.0.0."""
        found: list[PretendedNode] = []
        for group in self.groups:
            for place, id_ in enumerate(group.ids):
                number = len(found) + 1
                labels = dict(group.labels)
                if group.racks:
                    labels.setdefault("llmgw.io/rack", f"{group.rack}{place * group.racks // len(group.ids) + 1}")
                wish = Wish(
                    id=id_,
                    address=f"127.{network}.{number // 250}.{number % 250 + 1}",
                    labels=labels,
                    fabric=group.fabric,
                    cuts=group.cuts,
                    engines=group.engines,
                    weights=group.weights,
                )
                found.append(PretendedNode(id_, wish.address, facts(group.template, wish)))
        return tuple(found)


def read(raw: Any) -> World:
    """Raises `Invalid` with every problem."""
    if not isinstance(raw, Mapping):
        found = "nothing" if raw is None else f"a {type(raw).__name__}"
        raise Invalid("bad_world", f"a world is names with their values (nodes: …, models: …), and this is {found}")
    problems: list[Reason] = []
    fields = Fields(raw, "world: ", problems)
    name = fields.text("name", "a rehearsal")
    groups = _groups(fields)
    models = tuple(m for f in fields.tables("models") if (m := _model(f, problems)) is not None)
    names = {m.definition.name for m in models}
    if len(names) < len(models):
        fields.problem("two models have one name", "bad_name")
    store_restart = fields.text("store_restart")
    world = World(
        name=name,
        groups=groups,
        models=models,
        faults=_faults(fields, names, {i for g in groups for i in g.ids}, bool(store_restart)),
        traffic=_traffic(fields, names),
        settings=_settings(fields),
        bound_s=fields.duration("bound", 60.0, 24 * 3600.0),
        load_speed=fields.number("load_speed", 10.0, 0.01, 10_000.0),
        answer_speed=fields.number("answer_speed", 1.0, 0.01, 10_000.0),
        processes=fields.whole("processes", 1, 1, 64) or 1,
        join_within_s=fields.number("join_within_s", 0.0, 0.0, 3600.0),
        store_restart=store_restart,
        seed=fields.whole("seed", 0, 0) or 0,
    )
    fields.done()
    if problems:
        raise Invalid.several(tuple(problems))
    return world


def _groups(fields: Fields) -> tuple[Group, ...]:
    groups: list[Group] = []
    taken: set[str] = set()
    for inner in fields.tables("nodes"):
        group = _group(inner, len(taken))
        inner.done()
        if group is None:
            continue
        twice = sorted(taken & set(group.ids))
        if twice:
            inner.problem(f"there is a node {twice[0]} already: give the group an id with {{n}} of its own", "bad_name")
        taken |= set(group.ids)
        groups.append(group)
    if not groups:
        fields.problem("nodes must be a list of at least one group of machines", "missing")
    if len(taken) > MOST_NODES:
        fields.problem(f"{len(taken)} nodes are wanted, and {MOST_NODES} are the most")
    return tuple(groups)


def _group(fields: Fields, before: int) -> Group | None:
    kind = fields.text("template", required=True)
    count = fields.whole("count", 1, 1, MOST_NODES) or 1
    pattern = fields.text("id", f"{kind}-{{n}}")
    labels, fabric = fields.pairs("labels"), fields.text("fabric")
    rack, racks = fields.text("rack", "rack-"), fields.whole("racks", 0, 0, 1000) or 0
    engines = fields.texts("engines") or tuple(ENGINES)
    weights = fields.texts("weights")
    cut_fields = fields.tables("mig")
    template = TEMPLATES.get(kind)
    if template is None:
        if kind:
            fields.problem(f"there is no template {kind}; there are {', '.join(TEMPLATES)}", "unknown_template")
        return None
    cuts = tuple(c for f in cut_fields if (c := _cut(f, template)) is not None)
    if fabric and not template.adapters:
        fields.problem(f"a machine of {kind} has no adapters, and fabric: {fabric} was asked for")
    for engine in engines:
        if engine not in ENGINES:
            fields.problem(f"there is no engine {engine}; there are {', '.join(sorted(ENGINES))}", "unknown_engine")
    if count > 1 and "{n}" not in pattern:
        fields.problem(f"{count} nodes cannot all be called {pattern}: put {{n}} into the id", "bad_name")
        return None
    ids = tuple(pattern.replace("{n}", str(n)) for n in range(1, count + 1))
    if not _ID.fullmatch(ids[0]):
        fields.problem(f"{ids[0]!r} is no node id: letters, digits, dots, dashes and underscores", "bad_name")
    return Group(template, ids, labels, rack, min(racks, count), fabric, cuts, engines, weights)


def _cut(fields: Fields, template: Template) -> Cut | None:
    card = fields.whole("card", 0, 0, 63) or 0
    profiles = fields.texts("profiles")
    fields.done()
    if card >= template.cards:
        fields.problem(f"there is no card {card}: the machine has {template.cards}")
        return None
    wrong = [p for p in profiles if not MIG.fullmatch(p)]
    if wrong or not profiles:
        fields.problem(f"profiles are written like 3g.71gb, and not {wrong[0]!r}" if wrong else "profiles is missing")
        return None
    if slices(profiles) > 7:
        fields.problem(f"a card has seven slices, and {', '.join(profiles)} take {slices(profiles)}")
        return None
    return Cut(card, profiles)


def _model(fields: Fields, problems: list[Reason]) -> PretendedModel | None:
    raw = fields.take("definition")
    size_gb = fields.number("weights_gb", 2.0, 0.001, 10_000.0)
    parameters = fields.number("parameters_b", size_gb / 2, 0.001, 10_000.0)
    demand = _curve(fields)
    fields.done()
    if raw is None:
        fields.problem("definition is missing: what `llmgw model add -f` takes", "missing")
        return None
    try:
        definition = reading.read(raw)
    except Invalid as e:
        problems.extend(e.problems)
        return None
    return PretendedModel(dict(raw), definition, Weights(round(size_gb * GIB), parameters * 1e9), demand)


def _curve(fields: Fields) -> Curve | None:
    if fields.take("demand") is None:
        return None
    inner = fields.table("demand")
    found = Curve(
        rate=inner.number("rate", 1.0, 0.00001, 10_000.0),
        prompt=inner.whole("prompt_tokens", 400, 1, 1_000_000) or 400,
        answer=inner.whole("answer_tokens", 150, 1, 100_000) or 150,
        night=inner.number("night", 0.1, 0.0, 1.0),
        weekend=inner.number("weekend", 0.3, 0.0, 1.0),
        peak_hour=inner.number("peak_hour", 14.0, 0.0, 24.0),
    )
    inner.done()
    return found


def _traffic(fields: Fields, models: set[str]) -> Traffic | None:
    if fields.take("traffic") is None:
        return None
    inner = fields.table("traffic")
    found = Traffic(
        rate=inner.number("rate", 1.0, 0.001, 1000.0),
        models=inner.texts("models") or tuple(sorted(models)),
        prompt_tokens=inner.whole("prompt_tokens", 100, 1, 1_000_000) or 100,
        answer_tokens=inner.whole("answer_tokens", 30, 1, 100_000) or 30,
        streamed=inner.number("streamed", 0.5, 0.0, 1.0),
    )
    inner.done()
    for model in found.models:
        if model not in models:
            inner.problem(f"the world has no model {model}", "no_model")
    if not found.models:
        inner.problem("there is no model to ask", "no_model")
    return found


def _faults(fields: Fields, models: set[str], nodes: set[str], has_store_restart: bool) -> tuple[Fault, ...]:
    found = []
    for inner in fields.tables("faults"):
        fault = core_faults.read(inner, models, nodes, has_store_restart)
        if fault is not None:
            inner.done()
            found.append(fault)
    return tuple(found)


def _settings(fields: Fields) -> dict[str, Any]:
    written = fields.take("settings")
    if written is not None and not isinstance(written, Mapping):
        fields.problem("settings must be dotted names with their values (fleet.drain_s: 2)")
        written = None
    found = {**DEFAULT_SETTINGS, **{str(k): v for k, v in (written or {}).items()}}
    document: dict[str, Any] = {}
    for path, value in found.items():
        try:
            document = core_settings.put(document, path, value)
        except BadSettings as e:
            fields.problem(f"settings: {e}", "bad_setting")
    return found
