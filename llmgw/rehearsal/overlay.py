"""A change to be tried before it is made: settings and models as they would be, over those that are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.rehearsal.figures import Weights
from agent.wire.reason import Reason
from catalog.core import reading
from catalog.core.definition import Definition
from catalog.core.fields import GIB, Fields
from catalog.core.writing import written
from llmgw.cluster.core import settings as core_settings
from llmgw.cluster.core.sections import BadSettings
from llmgw.cluster.core.settings import ClusterSettings
from llmgw.cluster.errors import Invalid

_PARTS = ("fleet", "serving", "facility", "gateway", "time_zone")
"""Of the settings: those that a rehearsal looks at. Another one would change nothing in it, and would seem to."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """`models`: changed definitions and new ones, by name; `stopped`: those that would rest; `nodes_out`: nodes that
    would be gone. `hour_costs`: of a card's hour, by the beginning of its class."""

    name: str
    settings: ClusterSettings
    models: dict[str, Definition] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    nodes_out: frozenset[str] = frozenset()
    hour_costs: dict[str, float] = field(default_factory=dict)
    weights: dict[str, Weights] = field(default_factory=dict)
    """Of models whose pace was not measured here."""


def read(raw: Any, document: dict[str, Any], present: Mapping[str, Definition], nodes: frozenset[str]) -> Overlay:
    """`document`: the settings in force; `present`: the models that are wanted now. Raises `Invalid` with every
    problem."""
    if not isinstance(raw, Mapping):
        raise Invalid("bad_change", "a change is names with their values (settings: …, models: …)")
    problems: list[Reason] = []
    fields = Fields(raw, "change: ", problems)
    name = fields.text("name", "the change")
    settings = _settings(fields, document)
    models, stopped, weights = _models(fields, present, problems)
    out = frozenset(fields.texts("nodes_out"))
    for node in sorted(out - nodes):
        fields.problem(f"there is no node {node}", "no_node")
    costs = _costs(fields)
    fields.done()
    if problems:
        raise Invalid.several(tuple(problems))
    return Overlay(name, settings, models, stopped, out, costs, weights)


def _settings(fields: Fields, document: dict[str, Any]) -> ClusterSettings:
    found = fields.take("settings")
    if found is not None and not isinstance(found, Mapping):
        fields.problem("settings must be dotted names with their values (fleet.scale_up_after_s: 5)")
        found = None
    changed = document
    for path, value in (found or {}).items():
        if str(path).split(".")[0] not in _PARTS:
            fields.problem(f"settings: {path} changes nothing in a rehearsal, which knows {', '.join(_PARTS)}")
            continue
        try:
            changed = core_settings.put(changed, str(path), value)
        except BadSettings as e:
            fields.problem(f"settings: {e}", "bad_setting")
    return core_settings.read(changed)


def _models(
    fields: Fields, present: Mapping[str, Definition], problems: list[Reason]
) -> tuple[dict[str, Definition], frozenset[str], dict[str, Weights]]:
    raw = fields.take("models")
    if raw is not None and not isinstance(raw, Mapping):
        fields.problem("models must be names with what changes of each (large: {scaling: {min: 2}})")
        raw = None
    models: dict[str, Definition] = {}
    stopped: set[str] = set()
    weights: dict[str, Weights] = {}
    for name, changes in (raw or {}).items():
        if not isinstance(changes, Mapping):
            fields.problem(f"models: {name} must be names with their values")
            continue
        changes = dict(changes)
        if changes.pop("stopped", False) is True:
            stopped.add(str(name))
        size_gb, parameters_b = changes.pop("weights_gb", None), changes.pop("parameters_b", None)
        if size_gb is not None:
            try:
                weights[str(name)] = Weights(round(float(size_gb) * GIB), float(parameters_b or size_gb / 2) * 1e9)
            except (TypeError, ValueError):
                fields.problem(f"models: {name}: weights_gb and parameters_b are numbers")
        if not changes and str(name) in present:
            continue
        base = written(present[str(name)]) if str(name) in present else {"name": str(name)}
        try:
            models[str(name)] = reading.read({**base, **changes})
        except Invalid as e:
            problems.extend(e.problems)
    return models, frozenset(stopped), weights


def _costs(fields: Fields) -> dict[str, float]:
    raw = fields.take("gpu_hour")
    if raw is None:
        return {}
    if not isinstance(raw, Mapping) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and v >= 0 for v in raw.values()
    ):
        fields.problem("gpu_hour must be what a card's hour costs, by its class (h200: 3.1)")
        return {}
    return {str(k): float(v) for k, v in raw.items()}
