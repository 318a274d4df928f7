"""One pass of the reconciler: load, decide, commit, tell. Whoever calls it, one at a time in a process."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from fleet import apply, nudges
from fleet.core import reconcile
from fleet.selectors.world import load_wanted, load_world
from llmgw.cluster import leases

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
    held = leases.hold(apply.LEASE, apply.holder(), LEASE_S)
    if held is None:
        return Passed(leader=False)
    for attempt in range(ATTEMPTS):
        now = time.time()
        world = load_world(now)
        plan = reconcile.plan(world, load_wanted(), now)
        held = leases.hold(apply.LEASE, apply.holder(), LEASE_S)  # planning may have taken a while
        if held is None:
            return Passed(leader=False)
        try:
            nodes = apply.commit(plan, version=world.version, held=held, now=now)
        except apply.Stale as e:
            log.info("planning again: %s", e)
            time.sleep(0.01 * 2**attempt)
            continue
        nudges.link(nodes)
        return Passed(leader=True, steps=len(plan.steps), nodes=nodes)
    return Passed(leader=True)
