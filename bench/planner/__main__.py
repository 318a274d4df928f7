"""`python -m bench.planner`: how long a pass of the planner takes, with its load from the store, as fleets grow.

A steady pass is what runs every two seconds: nodes have sent heartbeats since the last one, every fifteenth has told
its facts anew, and there is nothing to do. Placing everything afresh is measured apart. Times are the middle of
several; the first pass of a process, which decodes all facts, is told by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.planner.fleet import CARDS, beats, crowded, store
from bench.store import KINDS, throwaway

if TYPE_CHECKING:
    from fleet.core.world import WantedModel, World

PASSES = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One size of fleet. Times are milliseconds."""

    nodes: int
    replicas: int
    first: float
    steady: float
    steady_cpu: float
    """What this process computed meanwhile: on a busy machine the truer figure. SQLite computes in it too."""
    loading: float
    queries: int
    waiting: float
    """A steady pass while twenty replicas fit nowhere."""
    waiting_cpu: float
    afresh: float
    """Placing all of them, planned as one."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.planner", description=__doc__)
    parser.add_argument("--nodes", default="100,300,1000", help="sizes, rising")
    parser.add_argument("--store", choices=KINDS, default="sqlite")
    parser.add_argument("--profile", action="store_true", help="print where the time of steady passes goes")
    parser.add_argument("--no-afresh", action="store_true", help="leave out placing everything afresh")
    given = parser.parse_args()
    with throwaway(given.store):
        rows = [measured(int(n), given.profile, afresh=not given.no_afresh) for n in given.nodes.split(",")]
    print(f"\n{CARDS} cards a node; {given.store}; milliseconds, the middle of {PASSES}\n")
    heads = (
        "nodes, replicas, first pass, steady pass, CPU of it, of it loading, queries, twenty wait, CPU of it, afresh"
    )
    print("| " + heads.replace(", ", " | ") + " |")
    print("|---" * len(heads.split(", ")) + "|")
    for r in rows:
        figures = (r.first, r.steady, r.steady_cpu, r.loading, r.queries, r.waiting, r.waiting_cpu, r.afresh)
        print(f"| {r.nodes:,} | {r.replicas:,} | {' | '.join(f'{f:.0f}' for f in figures)} |")


def measured(nodes: int, profiled: bool, *, afresh: bool) -> Row:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from fleet.core import starting
    from fleet.core.reconcile import plan
    from fleet.selectors.world import load_wanted, load_world

    store(nodes)

    def one() -> float:
        now, cpu = time.time(), time.process_time()
        world, wanted = load_world(now), load_wanted()
        world = replace(world, starts=starting.starts(world.shown, (w.definition for w in wanted)))
        loaded.append((time.time() - now) * 1000)
        assert not plan(world, wanted, now).steps, "the world is not steady"
        computed.append((time.process_time() - cpu) * 1000)
        return (time.time() - now) * 1000

    loaded: list[float] = []
    computed: list[float] = []
    first = one()
    loaded.clear()
    if profiled:
        _profile(one)
    computed.clear()
    steady = [heard(n, one) for n in range(PASSES)]
    steady_cpu = statistics.median(computed)
    loading = statistics.median(loaded[-PASSES:])
    with CaptureQueriesContext(connection) as queries:
        one()
    world, wanted = load_world(time.time()), load_wanted()
    fresh = placed_afresh(world, wanted) if afresh else float("nan")
    crowded()
    beats(0)
    settle()
    one()
    if profiled:
        _profile(one)
    computed.clear()
    waiting = [heard(n, one) for n in range(PASSES)]
    return Row(
        nodes,
        len(world.replicas),
        first,
        statistics.median(steady),
        steady_cpu,
        loading,
        len(queries),
        statistics.median(waiting),
        statistics.median(computed),
        fresh,
    )


def settle() -> None:
    """Carries out the pass that makes rows of what waits."""
    from fleet import apply
    from fleet.core.reconcile import plan
    from fleet.selectors.world import load_wanted, load_world
    from llmgw.cluster import leases

    now = time.time()
    world = load_world(now)
    held = leases.take(apply.LEASE, "bench", 60)
    apply.commit(plan(world, load_wanted(), now), version=world.version, held=held, now=now)


def placed_afresh(world: World, wanted: tuple[WantedModel, ...]) -> float:
    """From nothing to everything placed: as many passes as it takes, without the store."""
    from fleet.core.reconcile import plan
    from fleet.core.simulate import apply

    world = replace(world, replicas=())
    took = 0.0
    while True:
        began = time.perf_counter()
        found = plan(world, wanted, time.time())
        took += time.perf_counter() - began
        if not found.steps:
            return took * 1000
        world = apply(world, found, time.time())


def heard(turn: int, one: Callable[[], float]) -> float:
    """A pass after what comes in between two."""
    beats(turn)
    return one()


def _profile(one: Callable[[], float]) -> None:
    import cProfile
    import pstats

    profile = cProfile.Profile()
    for n in range(3):
        heard(n, lambda: profile.runcall(one))
    pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    main()
