"""A whole run: everybody started, every round visits every contender once per workload, A B and then B A."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import contenders, processes
from bench.cell import Cell
from bench.contenders import Contender
from bench.edge import Edge, edge
from bench.measuring import measure
from bench.processes import Cores
from bench.workloads import WORKLOADS, Workload

NAMES = ("direct", "nginx", "edge")


@dataclass(frozen=True, slots=True)
class Plan:
    contenders: tuple[str, ...]
    workloads: tuple[Workload, ...] = WORKLOADS
    rounds: int = 5
    quick: bool = False

    def seconds(self, workload: Workload) -> float:
        return workload.quick_s if self.quick else workload.seconds


@dataclass(frozen=True, slots=True)
class Books:
    """What the edge left in its spool, beside what clients were answered. They must agree."""

    answered: int
    settled: int


def run(plan: Plan, which: Cores, scratch: Path, say: Callable[[str], None]) -> tuple[list[Cell], Books | None]:
    """Every cell; raises `CannotStart`, `CannotBuild`, `RuntimeError`."""
    cells: list[Cell] = []
    with ExitStack() as stack:
        # Our own few lines of work go where the load is: the proxies' core is for them alone.
        stack.enter_context(processes.on_core(which.load))
        engine = stack.enter_context(contenders.engine(which.load))
        ours = [engine.pid]
        measured: list[Contender] = []
        the_edge: Edge | None = None
        if "direct" in plan.contenders:
            measured.append(contenders.direct(engine))
        if "nginx" in plan.contenders:
            measured.append(stack.enter_context(contenders.nginx(engine, which.proxy, scratch / "nginx")))
        if "edge" in plan.contenders:
            the_edge = stack.enter_context(edge(engine, which, scratch / "home"))
            measured.append(the_edge.contender)
            ours.append(the_edge.redis_pid)
        ours += [c.pid for c in measured if c.pid not in ours]
        warm = _warm_up(measured, plan, which, tuple(ours), scratch)
        for round in range(plan.rounds):
            for workload in plan.workloads:
                for contender in _order(measured, round):
                    seconds = plan.seconds(workload)
                    cells.append(measure(contender, workload, round, seconds, which, tuple(ours), scratch))
            say(f"round {round + 1} of {plan.rounds}")
        if the_edge is None:
            return cells, None
        answered = sum(c.answered for c in (*warm, *cells) if c.contender == "edge")
        return cells, Books(answered, the_edge.settled())


def _order(measured: Sequence[Contender], round: int) -> Sequence[Contender]:
    return measured if round % 2 == 0 else measured[::-1]


def _warm_up(
    measured: Sequence[Contender], plan: Plan, which: Cores, ours: tuple[int, ...], scratch: Path
) -> list[Cell]:
    """Pools filled and code paths taken once; large bodies and crowds of streams not, for they would show in memory."""
    gentle = [w for w in WORKLOADS if w.name in ("latency", "burst")]
    return [measure(c, w, 0, 0.3, which, ours, scratch) for c in measured for w in gentle]
