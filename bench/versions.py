"""`python -m bench.versions OLD NEW`: two versions of the edge by turns, by the CPU that they take.

OLD and NEW are folders with a checkout each. Wall time says nothing on a machine with other work; CPU time for the same
requests says something, and its ratio within a round says more, for what disturbs disturbs both. `--together` has both
at work at once, on the same core and each with half of the load: what disturbs does so in the same moment, and a
hundredth is told apart; but each has less of the processor's caches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench import contenders, processes
from bench.cell import Cell
from bench.edge import Edge, edge
from bench.measuring import measure
from bench.programs import CannotBuild
from bench.workloads import WORKLOADS, Workload

USUAL = "requests,burst,paced"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    which = processes.cores()
    if which is None:
        print("bench: measuring needs two cores, and this process may use one", file=sys.stderr)
        return 2
    workloads = [w for w in WORKLOADS if w.name in options.only.split(",")]
    try:
        taken = turns(options.versions, workloads, options.rounds, which, options.together)
    except (CannotBuild, contenders.CannotStart, RuntimeError) as e:
        print(f"bench: {e}", file=sys.stderr)
        return 2
    for workload in workloads:
        print("\n".join(_lines(workload, options.versions, taken)), flush=True)
    return 0


def turns(
    versions: Sequence[Path], workloads: Sequence[Workload], rounds: int, which: processes.Cores, together: bool = False
) -> list[dict[str, list[float]]]:
    """Of each version, by workload: CPU µs a request, or a token of a stream, round by round. Raises `RuntimeError`
    where one was not answered."""
    taken: list[dict[str, list[float]]] = [{w.name: [] for w in workloads} for _ in versions]
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llmgw-bench-")))
        stack.enter_context(processes.on_core(which.load))
        engine = stack.enter_context(contenders.engine(which.load))
        edges = []
        for i, version in enumerate(versions):
            (scratch / str(i)).mkdir()
            edges.append(stack.enter_context(edge(engine, which, scratch / str(i) / "home", root=version)))
        order = list(enumerate(edges))
        at_once = stack.enter_context(ThreadPoolExecutor(len(edges) if together else 1))
        for round in range(rounds):
            for workload in workloads:
                asked = _shared(workload, len(edges)) if together else workload

                def cell(numbered: tuple[int, Edge], asked: Workload = asked, round: int = round) -> Cell:
                    i, one = numbered
                    ours = (engine.pid, one.redis_pid, one.contender.pid)
                    return measure(one.contender, asked, round, asked.quick_s, which, ours, scratch / str(i))

                now = order if round % 2 == 0 else order[::-1]
                for (i, _), found in zip(now, at_once.map(cell, now), strict=True):
                    if found.errors:
                        raise RuntimeError(f"{versions[i]}: {found.errors} errors ({found.fault})")
                    taken[i][workload.name].append(_each_us(found))
    return taken


def _shared(workload: Workload, by: int) -> Workload:
    """The part of each."""
    arguments = list(workload.arguments)
    at = arguments.index("--connections") + 1
    arguments[at] = str(max(1, int(arguments[at]) // by))
    return replace(workload, arguments=tuple(arguments))


def _each_us(cell: Cell) -> float:
    return cell.cpu_s / (cell.all_tokens or cell.answered) * 1e6


def _lines(workload: Workload, versions: Sequence[Path], taken: list[dict[str, list[float]]]) -> list[str]:
    lines, first = [workload.title], taken[0][workload.name]
    for version, by_workload in zip(versions, taken, strict=True):
        found = by_workload[workload.name]
        ratio = statistics.median(a / b for a, b in zip(found, first, strict=True))
        us = f"{statistics.median(found):8.1f} µs ({min(found):.1f}…{max(found):.1f})"
        lines.append(f"  {us}  {ratio:5.2f} ×  {version}")
    return lines


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="+", type=lambda p: Path(p).resolve(), metavar="FOLDER")
    parser.add_argument("--only", default=USUAL, help=f"workloads, of which the usual are {USUAL}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--together", action="store_true", help="all at once, each with its part of the load")
    return parser


if __name__ == "__main__":
    sys.exit(main())
