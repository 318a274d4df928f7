"""A world file's week in minutes: its demand, node losses at random, and what must hold at every look. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.rehearsal import figures
from fleet.core.world import NodeView, WantedModel
from fleet.core.world import World as Fleet
from llmgw.cluster.core import settings as core_settings
from llmgw.cluster.core.sections import FleetSettings
from llmgw.cluster.errors import Invalid
from llmgw.rehearsal.pure.queue import Pace
from llmgw.rehearsal.pure.report import by_model, report
from llmgw.rehearsal.pure.shape import DAY_S, HOUR_S, Curve, asks
from llmgw.rehearsal.pure.week import Found, Happening, Rules, Week
from llmgw.rehearsal.worldfile import World
from llmgw.zones import known

BEGIN = 1_767_571_200.0
"""A monday, midnight in UTC."""
_LEAD_S = HOUR_S


def play(
    world: World, *, days: float = 7.0, losses: int = 3, look_s: float = 10.0, costs: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Raises `Invalid` where no model of the world says how it is asked for."""
    curves = _curves(world)
    document: dict[str, Any] = {}
    for path, value in world.settings.items():
        document = core_settings.put(document, path, value)
    # The rehearsal's own quick settings are for bad days of minutes: a week has the product's.
    settings = replace(core_settings.read(document), fleet=FleetSettings())
    nodes = tuple(NodeView(n.id, n.facts, dict(n.facts.labels or {})) for n in world.nodes(64))
    classes = {(n.id, c.index): c.gpu_class for n in nodes for c in n.facts.gpus or ()}
    weights = {m.definition.name: m.weights for m in world.models}
    made: dict[tuple[str, str | None, int], Pace] = {}

    def pace_of(model: str, node: str, devices: tuple[int, ...]) -> Pace:
        key = (model, classes.get((node, devices[0])) if devices else None, len(devices))
        if key not in made:
            speed = figures.speed(weights[model], key[1], key[2])
            made[key] = Pace(speed.load_s, speed.prompt_token_s, speed.step_s)
        return made[key]

    fleet = Fleet(nodes, settings=settings.fleet, facility=settings.facility, time_zone=settings.time_zone or "UTC")
    wanted = [WantedModel(m.definition) for m in world.models]
    seconds = days * DAY_S
    rules = Rules(settings.gateway.queue_max_wait_s, settings.gateway.queue_limit, look_s)
    week = Week(fleet, wanted, pace_of, rules, _losses(world, losses, seconds))
    week.run((), BEGIN - _LEAD_S, _LEAD_S)
    week.found = Found()
    stream = asks(curves, BEGIN, seconds, known(fleet.time_zone), world.seed)
    found = week.run(stream, BEGIN, seconds)
    return {
        "world": world.name,
        "days": days,
        "looks": found.looks,
        "node_losses": losses,
        "week": report(found, costs or {}).told(),
        "models": by_model(found),
        "broken": found.broken,
        "held": not found.broken,
    }


def _curves(world: World) -> dict[str, Curve]:
    found = {m.definition.name: m.demand for m in world.models if m.demand is not None}
    if not found and world.traffic is not None:
        share = world.traffic.rate / len(world.traffic.models)
        tokens = (world.traffic.prompt_tokens, world.traffic.answer_tokens)
        found = {name: Curve(share, *tokens) for name in world.traffic.models}
    if not found:
        raise Invalid("no_demand", "no model of the world says how it is asked for: demand: {rate: 1}")
    return found


def _losses(world: World, count: int, seconds: float) -> list[Happening]:
    """Nodes go at random moments, and are back an hour or some later."""
    dice = random.Random(world.seed + 1)  # noqa: S311 - a pretended week
    found: list[Happening] = []
    busy: dict[str, float] = {}
    for at in sorted(dice.uniform(0, seconds) for _ in range(count)):
        node, away_s = dice.choice(world.node_ids), dice.uniform(0.5, 8) * HOUR_S
        if busy.get(node, -1.0) < at:
            busy[node] = at + away_s
            found += [Happening(BEGIN + at, "lost", node), Happening(BEGIN + at + away_s, "back", node)]
    return found
