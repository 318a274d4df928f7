"""What is asked of a served model while it runs: how many replicas, fresh ones, another shape; its figures kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from catalog import selectors
from catalog.actions.models import kept, locked, refuse_declared, stored
from catalog.core.definition import Definition, Scaling
from catalog.core.scaling import clock, loads_on_demand
from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Conflict, Invalid


@dataclass(frozen=True, slots=True)
class Scaled:
    """`started`: it was stopped, and runs again. `dropped`: what its scaling said that means nothing any more."""

    name: str
    min: int
    max: int
    started: bool = False
    dropped: tuple[str, ...] = ()


def scale(*, name: str, actor: str, least: int | None = None, most: int | None = None) -> Scaled:
    """Other numbers of replicas; one that is left out stays, as far as the other allows. A stopped model starts."""
    found = selectors.entry(name)
    refuse_declared(found, "scaled", "llmgw config edit")
    if least is None and most is None:
        raise Invalid("bad_scale", "say how many replicas: --min, --max or both", f"llmgw scale {found.name} --min 2")
    for word, value in (("min", least), ("max", most)):
        if value is not None and not 0 <= value <= 1000:
            raise Invalid("bad_scale", f"{word} must be between 0 and 1000, and is {value}")
    definition = readable(found)
    if definition.external is not None:
        raise Conflict("external_model", f"{found.name} is served outside the cluster: it has no replicas to count")
    before = definition.scaling
    low = min(before.min, most if most is not None else before.min) if least is None else least
    high = max(before.max, low) if most is None else most
    if high < low:
        raise Invalid("bad_scale", f"max ({high}) is below min ({low})")
    for window in before.schedule:
        if window.max is None and window.min > high:
            raise Conflict(
                "schedule_wants_more",
                f"its window from {clock(window.start)} to {clock(window.end)} wants {window.min} replicas, and max "
                f"would be {high}: change the window first",
                f"llmgw model show {found.name}",
            )
    after, dropped = _without_idle(replace(before, min=low, max=high))
    with transaction.atomic():
        row = locked(found.name)
        started = row.stopped
        row.definition, row.stopped = stored(replace(definition, scaling=after)), False
        row.save(update_fields=["definition", "stopped", "changed_at"])
        audit.record(actor=actor, action="model.scale", subject=row.name, min=low, max=high)
        announce("catalog")
    return Scaled(found.name, low, high, started, dropped)


def restart(*, name: str, actor: str, in_place: bool = False) -> str:
    """Every replica that runs now is replaced, one at a time; the model's name."""
    found = selectors.entry(name)
    with transaction.atomic():
        row = kept(found)
        row.rollout = _rollout(in_place)
        row.save(update_fields=["rollout"])
        audit.record(actor=actor, action="model.restart", subject=found.name, in_place=in_place)
        announce("catalog")
    return found.name


def reshape(*, definition: Definition, actor: str, action: str, in_place: bool = False, **told: Any) -> str:
    """A stored model with another context or other cards; its replicas follow, one at a time."""
    found = selectors.entry(definition.name)
    refuse_declared(found, "changed", "llmgw config edit")
    with transaction.atomic():
        row = locked(found.name)
        row.definition = stored(definition)
        if in_place:
            row.rollout = _rollout(in_place)
        row.save(update_fields=["definition", "rollout", "changed_at"])
        audit.record(actor=actor, action=action, subject=row.name, in_place=in_place, **told)
        announce("catalog")
    return found.name


def measured(*, name: str, profile: str, figures: dict[str, Any], actor: str) -> str:
    """What a replica of `profile` carries, as it was measured."""
    found = selectors.entry(name)
    with transaction.atomic():
        row = kept(found)
        row.measured = {**(row.measured or {}), profile: figures}
        row.save(update_fields=["measured"])
        audit.record(actor=actor, action="model.measure", subject=found.name, profile=profile, **figures)
        announce("catalog")
    return found.name


def readable(found: selectors.Entry) -> Definition:
    """Its definition; refused where it cannot be read."""
    if found.definition is None:
        raise Conflict(
            "bad_definition",
            f"the definition of {found.name} cannot be read: {found.problems[0].sentence}",
            f"llmgw model show {found.name}",
        )
    return found.definition


def _rollout(in_place: bool) -> dict[str, Any]:
    return {"at": time.time(), "in_place": in_place}


def _without_idle(scaling: Scaling) -> tuple[Scaling, tuple[str, ...]]:
    """Without what is for models that load on demand, where it no longer does."""
    if loads_on_demand(scaling):
        return scaling, ()
    fresh = Scaling()
    names = []
    if scaling.idle_timeout_s != fresh.idle_timeout_s:
        names.append("idle_timeout")
    if scaling.prewarm_weekly:
        names.append("prewarm_weekly")
    return replace(scaling, idle_timeout_s=fresh.idle_timeout_s, prewarm_weekly=False), tuple(names)
