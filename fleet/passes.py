"""One pass of the reconciler: load, decide, commit, tell. Whoever calls it, one at a time in a process."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, replace

from django.db import transaction

from fleet import apply, events, keeping, nudges, scaling, spans
from fleet.actions import asking, learning
from fleet.core import noticing, reconcile, starting
from fleet.core.world import WantedModel, World
from fleet.selectors.world import load_wanted, load_world
from llmgw.cluster import leases
from llmgw.cluster.actions import notices

log = logging.getLogger(__name__)

LEASE_S = 6.0
"""After a planner's sudden death the next one waits this long; a living one renews it in its passes."""
ATTEMPTS = 5
_running = threading.Lock()
_waiting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass did: `steps` carried out, on which nodes; `leader` False: somebody else plans."""

    leader: bool
    steps: int = 0
    nodes: frozenset[str] = frozenset()


def run() -> Passed:
    """Brings the fleet one step nearer. One that comes while another runs waits for it; a third has nothing to add."""
    if not _waiting.acquire(blocking=False):
        return Passed(leader=True)
    with _running:
        _waiting.release()
        return _run()


def _run() -> Passed:
    if leases.hold(apply.LEASE, apply.holder(), LEASE_S) is None:
        return Passed(leader=False)
    for attempt in range(ATTEMPTS):
        try:
            # The last try looks and writes in one go: where there is always news, no look would stand otherwise.
            with transaction.atomic() if attempt == ATTEMPTS - 1 else contextlib.nullcontext():
                if attempt == ATTEMPTS - 1:
                    events.serialise()
                done = _attempt()
        except apply.Stale as e:
            log.info("planning again: %s", e)
            time.sleep(0.01 * 2**attempt)
            continue
        nudges.link(done.nodes)
        notices.stand(noticing.standings(done.world, done.wanted))
        learning.note_when_due()
        keeping.tidy_when_due()
        return Passed(leader=True, steps=done.steps, nodes=done.nodes)
    return Passed(leader=True)


@dataclass(frozen=True, slots=True)
class _Done:
    """`steps` carried out on `nodes`, and what they were decided from."""

    steps: int
    nodes: frozenset[str]
    world: World
    wanted: tuple[WantedModel, ...]


def _attempt() -> _Done:
    """Raises `Stale`."""
    now = time.time()
    world = load_world(now)
    asking.asked(world.demand)
    wanted = load_wanted()
    loaded = time.time()
    starts = starting.starts(world.shown, (w.definition for w in wanted))
    world = replace(world, targets=scaling.targets(world, wanted, now), starts=starts)
    plan = reconcile.plan(world, wanted, now)
    planned = time.time()
    held = leases.hold(apply.LEASE, apply.holder(), LEASE_S)  # planning may have taken a while
    if held is None:
        raise apply.Stale("another plans now")
    touched = apply.commit(plan, version=world.version, held=held, now=now)
    spans.passed(plan.steps, spans.Times(now, loaded, planned, time.time()))
    return _Done(len(plan.steps), touched, world, wanted)
