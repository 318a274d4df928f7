"""What the planner remembers of each model's load from pass to pass, and the line in its history when that moves it.

The memory is this process's own: whoever plans next takes the fleet as it finds it.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from fleet import models
from fleet.core import autoscale, scale
from fleet.core.autoscale import Spell, Step
from fleet.core.world import Demand, ReplicaView, WantedModel, World
from fleet.selectors.telling import SCALED

log = logging.getLogger(__name__)

_spells: dict[str, Spell] = {}


def targets(world: World, wanted: tuple[WantedModel, ...], now: float) -> dict[str, int]:
    """What the load of each model asks for, of those that have a choice."""
    of: dict[str, list[ReplicaView]] = defaultdict(list)
    for replica in world.replicas:
        of[replica.model].append(replica)
    found: dict[str, int] = {}
    bounds = scale.counts(world, wanted, now)
    for model in wanted:
        count = bounds[model.name]
        before = _spells.get(model.name)
        if count.replicas == 0 or count.most <= max(count.replicas, 1):
            _spells.pop(model.name, None)
            continue
        if not world.heard:
            spell, change = autoscale.unheard(before, now), None
        else:
            seen = autoscale.load(of[model.name], world.demand.get(model.name, Demand()))
            spell, change = autoscale.step(before, seen, count.replicas, count.most, world.settings, now, model.name)
        if spell is not None:
            _spells[model.name] = spell
            found[model.name] = spell.target
        if change is not None:
            _record(model.name, change)
    return found


def forget() -> None:
    """As a process that has just begun."""
    _spells.clear()


def _record(model: str, change: Step) -> None:
    models.ReplicaEvent.objects.create(model=model, state=SCALED, reason=change.reason.sentence)
    log.info("%s: %s", model, change.reason.sentence)
