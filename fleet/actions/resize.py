"""Another context or other cards for a model while it is served; its replicas follow, one at a time."""

from __future__ import annotations

import time

from agent.wire.reason import Reason
from catalog import selectors as catalog
from catalog.actions import life
from catalog.actions.models import refuse_declared
from catalog.core.definition import Definition
from fleet.actions import rollout
from fleet.core import resize as core
from fleet.selectors.model_facts import facts_of
from fleet.selectors.world import load_world
from llmgw.cluster.errors import Conflict, Invalid


def context(*, name: str, tokens: int, actor: str, slots: int | None = None) -> rollout.Begun:
    """How many tokens one request may use; of llama.cpp also how many are worked on at once."""
    definition = _definition(name)
    facts = facts_of(definition)
    changed = _made(core.with_context(definition, tokens, slots, facts))
    if changed == definition:
        raise Conflict("unchanged", f"{definition.name} has a context of {tokens} tokens already")
    _refuse(definition, changed, facts)
    return rollout.reshape(
        definition=changed,
        actor=actor,
        action="model.context",
        in_place=False,
        may_wait=True,
        again="",
        tokens=tokens,
        slots=slots,
    )


def gpus(*, name: str, count: int, actor: str, profile: str | None = None, in_place: bool = False) -> rollout.Begun:
    """How many cards of one node each replica uses."""
    definition = _definition(name)
    changed = _made(core.with_gpus(definition, profile, count, load_world(time.time()).nodes))
    _refuse(definition, changed, facts_of(definition))
    words = f" --profile {profile}" if profile else ""
    again = f"llmgw model gpus {definition.name} {count}{words} --in-place"
    return rollout.reshape(
        definition=changed,
        actor=actor,
        action="model.gpus",
        in_place=in_place,
        may_wait=False,
        again=again,
        count=count,
        profile=profile,
    )


def _definition(name: str) -> Definition:
    found = catalog.entry(name)
    refuse_declared(found, "changed", "llmgw config edit")
    definition = life.readable(found)
    if definition.external is not None:
        raise Conflict("external_model", f"{found.name} is served outside the cluster: how is for its provider to say")
    return definition


def _made(found: Definition | Reason) -> Definition:
    if isinstance(found, Reason):
        raise Invalid(found.code, found.sentence, found.command)
    return found


def _refuse(before: Definition, after: Definition, facts: core.Facts) -> None:
    problems = core.problems(before, after, facts, load_world(time.time()).nodes)
    if problems:
        raise Invalid.several(problems)
