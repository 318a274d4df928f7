"""Replacing a model's replicas while it is served: fresh ones of the same, or others after a change of its shape."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from agent.wire.reason import Reason
from catalog import selectors as catalog
from catalog.actions import life
from catalog.core.definition import Definition
from catalog.selectors import Entry
from fleet.core import rolling
from fleet.core.replica import State
from fleet.core.world import ReplicaView, WantedModel
from fleet.selectors.world import load_world
from llmgw.cluster.errors import Conflict

_RUNS = (State.STARTING, State.LOADING, State.READY, State.BACKOFF)


@dataclass(frozen=True, slots=True)
class Begun:
    """`replicas` are replaced; `sentence` says how."""

    name: str
    replicas: int
    in_place: bool
    sentence: str


def restart(*, name: str, actor: str, in_place: bool = False) -> Begun:
    """Every replica is replaced, a new one before the old one, in place where nothing else fits; refused, with the
    reason, where it fits nowhere even then."""
    found = catalog.entry(name)
    definition = life.readable(found)
    if definition.external is not None:
        raise Conflict("external_model", f"{found.name} is served outside the cluster: nothing of it runs here")
    if found.stopped:
        raise Conflict(
            "model_stopped", f"{found.name} is stopped: nothing of it runs", f"llmgw model start {found.name}"
        )
    way, running = look(found, definition)
    if not running:
        raise Conflict(
            "nothing_runs", f"no replica of {found.name} runs, so there is none to restart", f"llmgw why {found.name}"
        )
    if isinstance(way, rolling.Nowhere):
        raise Conflict(
            "restart_refused",
            f"the restart of {found.name} is refused, and what runs goes on serving: {way.why.sentence}",
            way.why.command,
        )
    life.restart(name=found.name, actor=actor, in_place=in_place)
    return Begun(found.name, len(running), in_place, told(way, found.name, len(running), in_place))


def reshape(
    *, definition: Definition, actor: str, action: str, in_place: bool, may_wait: bool, again: str, **audit: Any
) -> Begun:
    """A stored model with `definition` from now on, and its replicas after it. Refused where that would fit nowhere,
    and, unless `may_wait`, where it fits only in place and nobody said `in_place` (`again`: the command that does)."""
    found = catalog.entry(definition.name)
    way, running = look(found, definition)
    if running or not found.stopped:
        match way:
            case rolling.Nowhere(why) if running:
                raise Conflict("fits_nowhere", f"{found.name} would fit nowhere then: {why.sentence}", why.command)
            case rolling.InPlace(_, why) if not in_place and not may_wait:
                raise Conflict(
                    "no_room_beside",
                    f"there is no room beside the running replica of {found.name} ({why.sentence}): say --in-place to "
                    "stop each first; it does not answer while the new one loads",
                    again,
                )
    life.reshape(definition=definition, actor=actor, action=action, in_place=in_place, **audit)
    return Begun(found.name, len(running), in_place, told(way, found.name, len(running), in_place))


def look(found: Entry, definition: Definition) -> tuple[rolling.Way, list[ReplicaView]]:
    """How a replica of `definition` would come in beside what runs of the model now."""
    world = load_world(time.time())
    running = [r for r in world.replicas if r.model == found.name and r.state in _RUNS]
    # What waits for a place holds nothing, and what is on its way out will not.
    return rolling.way(world, WantedModel(replace(definition, prices=())), running), running


def told(way: rolling.Way, name: str, replicas: int, in_place: bool) -> str:
    if not replicas:
        return f"no replica of {name} runs now: the next one starts so"
    some = "its replica is" if replicas == 1 else f"its {replicas} replicas are"
    if in_place:
        pause = "it does not answer meanwhile" if replicas == 1 else "the others answer meanwhile"
        return f"{some} stopped and started anew, one at a time: {pause}"
    match way:
        case rolling.Beside():
            return f"{some} replaced one by one, each new one ready before the old one stops"
        case rolling.InPlace(_, why):
            return f"{some} replaced in place, since nothing fits beside ({_short(why)}): it may not answer meanwhile"
        case rolling.Nowhere(why):
            return f"it waits for room: {why.sentence}"


def _short(why: Reason) -> str:
    return why.sentence.removeprefix("no node can take it: ")
