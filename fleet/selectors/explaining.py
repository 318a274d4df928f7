"""`explain-placement`: the planner's world and judgement, as plain values."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agent.wire.facts import device_name
from catalog import selectors as catalog
from catalog.core.definition import Definition, ProfileDefinition, source_of
from fleet.core import learned as core_learned
from fleet.core.explain import explain
from fleet.core.learned import Figure
from fleet.core.world import WantedModel
from fleet.selectors import learned
from fleet.selectors.details import replicas
from fleet.selectors.world import load_world
from llmgw.cluster.errors import Conflict


def explain_placement(model: str) -> dict[str, Any]:
    """Where one more replica would go, every candidate with its reasons, and where the present ones are."""
    entry = catalog.entry(model)
    if entry.definition is None:
        raise Conflict(
            "bad_definition", f"{entry.name} cannot be placed: {entry.problems[0]}", f"llmgw model show {model}"
        )
    if entry.definition.external is not None:
        raise Conflict("external_model", f"{entry.name} is served outside the cluster: nothing is placed for it")
    world = load_world(time.time())
    found = explain(world, WantedModel(entry.definition, entry.stopped))
    return {
        "model": found.model,
        "answer": found.sentence,
        "stopped": entry.stopped,
        "synced": world.synced,
        "node": found.chosen[0] if found.chosen else None,
        "profile": found.chosen[1] if found.chosen else None,
        "devices": [device_name(d) for d in found.devices],
        "candidates": [
            {
                "node": c.node,
                "profile": c.profile,
                "fits": c.score is not None,
                "score": round(c.score, 3) if c.score is not None else None,
                "chosen": found.chosen == (c.node, c.profile),
                "reasons": [{"code": r.code, "sentence": r.sentence, "command": r.command} for r in c.rejections],
            }
            for c in found.candidates
        ],
        "seats": [
            {
                "rank": rank,
                "node": s.node,
                "devices": [device_name(d) for d in s.devices],
                "fabric": s.link.name if s.link is not None else None,
                "adapters": list(s.link.adapters) if s.link is not None else [],
            }
            for rank, s in enumerate(found.seats)
        ],
        "fabrics": [
            {
                "fabric": g.fabric,
                "kind": g.kind,
                "profile": g.profile,
                "wanted": g.wanted,
                "fitting": g.fitting,
                "nodes": list(g.nodes),
                "sentence": g.sentence,
            }
            for g in found.groups
        ],
        "learned": {
            name: learned.told(figures)
            for p in entry.definition.profiles
            for name, figures in _learned(entry.definition, p)
        },
        "replicas": replicas(model=found.model),
    }


def _learned(definition: Definition, profile: ProfileDefinition) -> Iterator[tuple[str, dict[str, Figure]]]:
    """What runs of a profile have shown: of one that names no class of card, on each that it ran on."""
    run = profile.run
    key = core_learned.key(run, source_of(definition, profile)[0], run.gpu_class or "")
    if run.gpu_class or not run.gpus:
        yield run.name, learned.of(key)
        return
    for gpu_class in learned.shown().get(key, {}):
        yield f"{run.name} on {gpu_class}", learned.of(replace(key, gpu_class=gpu_class))
