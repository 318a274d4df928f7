"""What a model's own files say of it: looked at here, else asked of a node that has them."""

from __future__ import annotations

import msgspec

from agent.engine import ModelFacts
from catalog import sources
from catalog.core.definition import Definition, source_of
from fleet import models
from fleet.questions import ask
from fleet.selectors.world import facts_of as node_facts
from llmgw.cluster.errors import Refusal

_MOST_ASKED = 2
WAIT_S = 3.0


def facts_of(definition: Definition) -> dict[str, ModelFacts]:
    """By profile; without the profiles of which nobody knows anything."""
    known: dict[str, ModelFacts | None] = {}
    found: dict[str, ModelFacts] = {}
    for profile in definition.profiles:
        source = source_of(definition, profile)[0]
        if source not in known:
            known[source] = sources.facts_of(source) or _asked(source, definition.name)
        if (facts := known[source]) is not None:
            found[profile.run.name] = facts
    return found


def _asked(source: str, model: str) -> ModelFacts | None:
    """Of nodes that run the model, then of those that say that they have the weights."""
    runs = list(models.Node.objects.filter(connected=True, shards__replica__model=model).distinct()[:_MOST_ASKED])
    if not runs:
        there = models.Node.objects.filter(connected=True)
        runs = [n for n in there if source in (node_facts(n).weights or ())][:_MOST_ASKED]
    for node in runs:
        try:
            answer = ask(node.node_id, "model", {"source": source}, timeout_s=WAIT_S)
        except Refusal:
            continue
        if answer.ok and (told := answer.body.get("facts")):
            return msgspec.convert(told, ModelFacts, strict=False)
    return None
