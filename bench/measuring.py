"""One cell measured: a workload on a contender, with what the contender's process cost."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.cell import Cell, Spread
from bench.contenders import Contender
from bench.processes import Cores
from bench.programs import program
from bench.workloads import Workload


def measure(
    contender: Contender,
    workload: Workload,
    round: int,
    seconds: float,
    which: Cores,
    ours: tuple[int, ...],
    scratch: Path,
) -> Cell:
    """One cell; `ours` are the pids of the whole run. Raises `RuntimeError` where the load could not run."""
    path = scratch / f"{contender.name}.{workload.name}.http"
    if not path.exists():
        path.write_bytes(workload.request(contender.port, contender.key))
    pid = contender.pid
    processes.settle(pid)
    processes.forget_peak(pid)
    resting_kb = processes.memory_kb(pid)
    begin = _Meter.read(pid, ours, which)
    argv = (str(program("load")), *workload.arguments, "--port", str(contender.port), "--request", str(path))
    load = processes.start((*argv, "--seconds", str(seconds)), which.load, stdout=subprocess.PIPE)
    try:
        if workload.ramp_s:
            time.sleep(workload.ramp_s)
            steady = _Meter.read(pid, ours, which)
            time.sleep(seconds - workload.ramp_s - 0.1)
            cpu_share = steady.share_until(_Meter.read(pid, ours, which))
            added_kb = processes.memory_kb(pid) - resting_kb
        out, _ = load.communicate(timeout=seconds + 20)
    finally:
        processes.end(load)
    if load.returncode:
        raise RuntimeError(f"{contender.name} could not be measured: the load generator exited {load.returncode}")
    finish = _Meter.read(pid, ours, which)
    if not workload.ramp_s:
        cpu_share = begin.share_until(finish)
        added_kb = processes.peak_kb(pid) - resting_kb
    said = json.loads(out)
    return Cell(
        contender=contender.name,
        workload=workload.name,
        round=round,
        seconds=said["seconds"],
        answered=said["answered"],
        in_time=said["in_time"],
        errors=said["errors"],
        tokens=said["tokens"],
        all_tokens=said["all_tokens"],
        bytes_sent=said["bytes_sent"],
        cpu_s=finish.contender_s - begin.contender_s,
        cpu_share=cpu_share,
        added_kb=added_kb,
        others_share=begin.others_until(finish),
        fault=said["fault"],
        latency=_spread(said.get("latency")),
        ttft=_spread(said.get("ttft")),
        lag=_spread(said.get("lag")),
    )


def _spread(said: dict[str, float] | None) -> Spread | None:
    return Spread(said["p50"], said["p99"]) if said else None


@dataclass(frozen=True, slots=True)
class _Meter:
    """Readings of one moment, in seconds."""

    at: float
    contender_s: float
    ours_s: float
    busy_s: float
    """Both cores, whoever it was."""

    @classmethod
    def read(cls, pid: int, ours: tuple[int, ...], which: Cores) -> _Meter:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)  # load generators
        ours_s = sum(map(processes.cpu_s, ours)) + ended.ru_utime + ended.ru_stime + time.process_time()
        return cls(time.monotonic(), processes.cpu_s(pid), ours_s, processes.busy_s(which))

    def share_until(self, later: _Meter) -> float:
        return (later.contender_s - self.contender_s) / (later.at - self.at)

    def others_until(self, later: _Meter) -> float:
        others_s = (later.busy_s - self.busy_s) - (later.ours_s - self.ours_s)
        return max(0.0, others_s / (later.at - self.at) / 2)
