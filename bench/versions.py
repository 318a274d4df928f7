"""`python -m bench.versions OLD NEW`: two versions of the edge by turns, by the CPU that they take.

OLD and NEW are folders with a checkout each. Wall time says nothing on a machine with other work; CPU time for the same
requests says something, and its ratio within a round says more, for what disturbs disturbs both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import contenders, processes
from bench.cell import Cell
from bench.edge import edge
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
        taken = turns(options.versions, workloads, options.rounds, which)
    except (CannotBuild, contenders.CannotStart, RuntimeError) as e:
        print(f"bench: {e}", file=sys.stderr)
        return 2
    for workload in workloads:
        print("\n".join(_lines(workload, options.versions, taken)), flush=True)
    return 0


def turns(
    versions: Sequence[Path], workloads: Sequence[Workload], rounds: int, which: processes.Cores
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
        for round in range(rounds):
            for workload in workloads:
                for i, one in order if round % 2 == 0 else order[::-1]:
                    ours = (engine.pid, one.redis_pid, one.contender.pid)
                    cell = measure(one.contender, workload, round, workload.quick_s, which, ours, scratch / str(i))
                    if cell.errors:
                        raise RuntimeError(f"{versions[i]}: {cell.errors} errors ({cell.fault})")
                    taken[i][workload.name].append(_each_us(cell))
    return taken


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
    return parser


if __name__ == "__main__":
    sys.exit(main())
