"""A whole run: everybody started, every round visits every contender once per workload, A B and then B A."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import contenders, processes
from bench.cell import Cell
from bench.contenders import CannotStart, Contender
from bench.edge import Edge, compiled, edge
from bench.measuring import measure
from bench.peers import PEERS, addresses
from bench.processes import Cores
from bench.workloads import WORKLOADS, Workload

EDGES = ("edge", "compiled")
"""The edge from its sources, and in its compiled form."""
NAMES = ("direct", "nginx", *PEERS, *EDGES)
QUIET = 0.05
"""The share of the two cores that others may take before a figure is doubtful."""


@dataclass(frozen=True, slots=True)
class Plan:
    contenders: tuple[str, ...]
    workloads: tuple[Workload, ...] = WORKLOADS
    rounds: int = 5
    quick: bool = False
    tries: int = 1
    """How often a cell may be measured until others leave the cores alone; the quietest counts."""

    def seconds(self, workload: Workload) -> float:
        return workload.quick_s if self.quick else workload.seconds


@dataclass(frozen=True, slots=True)
class Run:
    """`cells` make the figures; `all` has the warm-up and the noisy tries too, whose errors count as well."""

    cells: tuple[Cell, ...]
    all: tuple[Cell, ...]
    settled: int | None
    """What the edges left in their books, which must be what clients were answered; None without an edge."""

    @property
    def answered_by_edges(self) -> int:
        return sum(c.answered for c in self.all if c.contender in EDGES)


def run(plan: Plan, which: Cores, scratch: Path, say: Callable[[str], None]) -> Run:
    """Every cell; raises `CannotStart`, `CannotBuild`, `RuntimeError`."""
    with ExitStack() as stack:
        # Our own few lines of work go where the load is: the proxies' core is for them alone.
        stack.enter_context(processes.on_core(which.load))
        engine = stack.enter_context(contenders.engine(which.load))
        ours = [engine.pid]
        measured: list[Contender] = []
        edges: list[Edge] = []
        if "direct" in plan.contenders:
            measured.append(contenders.direct(engine))
        if "nginx" in plan.contenders:
            measured.append(stack.enter_context(contenders.nginx(engine, which.proxy, scratch / "nginx")))
        for name in plan.contenders:
            if name in PEERS:
                try:
                    peer = PEERS[name].running(addresses(engine), which.proxy, scratch / name, say)
                    measured.append(stack.enter_context(peer))
                except CannotStart as e:
                    say(f"left out: {e}")
        for name in (n for n in EDGES if n in plan.contenders):
            builds = compiled(say) if name == "compiled" else None
            edges.append(stack.enter_context(edge(engine, which, scratch / f"{name}-home", compiled=builds)))
        measured += [one.contender for one in edges]
        ours += [one.redis_pid for one in edges]
        ours += [c.pid for c in measured if c.pid not in ours]
        stage = _Stage(plan, which, tuple(ours), scratch)
        for contender in measured:
            stage.warm_up(contender)
        for round in range(plan.rounds):
            for workload in plan.workloads:
                for contender in measured if round % 2 == 0 else reversed(measured):
                    stage.cell(contender, workload, round)
            say(f"round {round + 1} of {plan.rounds}")
        for one in edges:
            processes.settle(one.contender.pid)
        settled = sum(one.settled() for one in edges) if edges else None
        return Run(tuple(stage.chosen), tuple(stage.all), settled)


class _Stage:
    """Everybody is up: what was measured so far."""

    def __init__(self, plan: Plan, which: Cores, ours: tuple[int, ...], scratch: Path) -> None:
        self._plan, self._which, self._ours, self._scratch = plan, which, ours, scratch
        self.chosen: list[Cell] = []
        self.all: list[Cell] = []

    def warm_up(self, contender: Contender) -> None:
        """Pools filled and code paths taken once; not by large bodies and crowds, whose memory is to be seen."""
        for workload in WORKLOADS:
            if workload.name in ("latency", "burst"):
                self._measure(contender, workload, 0, 0.3)

    def cell(self, contender: Contender, workload: Workload, round: int) -> None:
        tries: list[Cell] = []
        while len(tries) < self._plan.tries and not (tries and tries[-1].others_share <= QUIET):
            if self._plan.tries > 1:
                processes.wait_for_quiet(self._which, QUIET)
            tries.append(self._measure(contender, workload, round, self._plan.seconds(workload)))
        quietest = min(tries, key=lambda c: c.others_share)
        # Memory that the first try took is still there in the second, which therefore adds none.
        self.chosen.append(replace(quietest, added_kb=max(c.added_kb for c in tries)))

    def _measure(self, contender: Contender, workload: Workload, round: int, seconds: float) -> Cell:
        cell = measure(contender, workload, round, seconds, self._which, self._ours, self._scratch)
        self.all.append(cell)
        return cell
