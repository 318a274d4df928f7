"""Where the edge's time goes: one workload on an edge under cProfile.

It makes small calls look dearer than they are: it says where to look, the table says what it brought. (Profilers
that sample from within see little: uvloop delivers signals and gives up the interpreter's lock only between turns.)
"""

from __future__ import annotations

import io
import pstats
from contextlib import ExitStack
from pathlib import Path

from bench import contenders, processes
from bench.edge import edge
from bench.measuring import measure
from bench.processes import Cores
from bench.workloads import WORKLOADS

SECONDS = 4.0
LINES = 45


def profiled(name: str, which: Cores, scratch: Path, out: Path) -> str:
    """The functions by their own time; the whole profile stays in `out` for `python -m pstats`."""
    workload = next(w for w in WORKLOADS if w.name == name)
    out.mkdir(exist_ok=True)
    path = out / f"edge-{name}.pstats"
    with ExitStack() as stack:
        stack.enter_context(processes.on_core(which.load))
        engine = stack.enter_context(contenders.engine(which.load))
        run = ("-m", "cProfile", "-o", str(path), "-m", "gateway.edge")
        the_edge = stack.enter_context(edge(engine, which, scratch / "home", run))
        ours = (engine.pid, the_edge.redis_pid, the_edge.contender.pid)
        cell = measure(the_edge.contender, workload, 0, SECONDS, which, ours, scratch)
    text = io.StringIO()
    pstats.Stats(str(path), stream=text).strip_dirs().sort_stats("tottime").print_stats(LINES)
    return f"{cell.answered} answered, {cell.errors} errors, {cell.cpu_s:.2f} s of CPU; {path}\n{text.getvalue()}"
