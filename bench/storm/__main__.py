"""`python -m bench.storm --nodes 1000`: so many real agents dial the real link at once; how long until all are in,
what CPU and memory the link takes for it, and what their heartbeats take afterwards.

Agents share processes (`--processes`), on this machine: their own work takes CPU from the link's, so times are upper
bounds. What the link itself used is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmgw.rehearsal.control import ControlPlane
    from llmgw.rehearsal.machines import Machines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.storm", description=__doc__)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--template", default="h200x8", help="what each node says of itself")
    parser.add_argument("--steady", type=float, default=20.0, help="seconds of heartbeats that are measured")
    parser.add_argument("--heartbeat", type=float, default=2.0)
    parser.add_argument("--within", type=float, default=0.0, help="spread the dials over so many seconds")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it began ends with it
    home = Path(tempfile.mkdtemp(prefix="llmgw-storm-"))
    try:
        found = _run(asked, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' '):<28} {value}")


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds up to now, and the link's memory."""

    link: float
    control_plane: float
    agents: float
    link_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Seconds until so many were in, and how many connections had ended before they were."""

    half_s: float
    all_s: float
    came_again: int


def _run(asked: argparse.Namespace, home: Path) -> dict[str, Any]:
    _set_up(home)
    from django.conf import settings

    from fleet import models
    from llmgw.rehearsal.conduct import Rehearsal
    from llmgw.rehearsal.worldfile import read

    world = read(
        {
            "nodes": [{"template": asked.template, "count": asked.nodes, "id": "n-{n}", "racks": 8}],
            "processes": asked.processes,
            "settings": {"fleet.heartbeat_s": asked.heartbeat, "fleet.node_lost_s": 60.0},
        }
    )
    rehearsal = Rehearsal(world, settings.MACHINE, lambda said: print(said, file=sys.stderr))
    with rehearsal.prepared() as (control, machines):
        before = _spent(control, machines)
        began = time.monotonic()
        machines.tell("start", within_s=asked.within)
        joined = _wait_until_in(asked.nodes, began, home)
        within = _spent(control, machines)
        time.sleep(5)
        at_rest, steady_from = _spent(control, machines), time.monotonic()
        time.sleep(asked.steady)
        passed = time.monotonic() - steady_from
        after = _spent(control, machines)
        still = models.Node.objects.filter(connected=True).count()
    return {
        "nodes": asked.nodes,
        "half_in_s": round(joined.half_s, 1),
        "all_in_s": round(joined.all_s, 1),
        "came_again": joined.came_again,
        "link_cpu_to_join_s": round(within.link - before.link, 1),
        "link_cpu_a_join_ms": round(1000 * (within.link - before.link) / asked.nodes, 1),
        "control_plane_cpu_to_join_s": round(within.control_plane - before.control_plane, 1),
        "agents_cpu_to_join_s": round(within.agents - before.agents, 1),
        "link_memory_mb": round(after.link_memory_bytes / 2**20),
        "link_memory_a_node_kb": round((within.link_memory_bytes - before.link_memory_bytes) / asked.nodes / 1024),
        "steady_link_cpu_percent": round(100 * (after.link - at_rest.link) / passed, 1),
        "steady_control_plane_cpu_percent": round(100 * (after.control_plane - at_rest.control_plane) / passed, 1),
        "steady_agents_cpu_percent": round(100 * (after.agents - at_rest.agents) / passed, 1),
        "connected_at_the_end": still,
        "load_average": round(os.getloadavg()[0], 1),
    }


def _set_up(home: Path) -> None:
    """A control plane of its own, on free ports."""
    from llmgw.rehearsal import home as own_home

    own_home.prepare(home)
    for name in [n for n in os.environ if n.startswith("LLMGW_")]:
        del os.environ[name]
    from llmgw.rehearsal.ports import free_ports

    ports = map(str, free_ports(3))
    os.environ.update(LLMGW_HOME=str(home), DJANGO_SETTINGS_MODULE="llmgw.settings")
    os.environ.update(zip(("PORT", "LINK_PORT", "METRICS_PORT"), ports, strict=True))
    import django

    django.setup()


def _spent(control: ControlPlane, machines: Machines) -> Spent:
    from llmgw.rehearsal.control import cpu_and_memory

    link, memory_bytes = cpu_and_memory(control.pids(["link"]))
    whole, _ = cpu_and_memory(control.pids())
    return Spent(link, whole, machines.seen().cpu_s, memory_bytes)


def _wait_until_in(nodes: int, began: float, home: Path) -> Joined:
    from fleet.models import Node

    half_s = None
    while True:
        within = Node.objects.filter(connected=True).exclude(reported_at=None).count()
        passed = time.monotonic() - began
        if half_s is None and within >= nodes / 2:
            half_s = passed
        if within >= nodes:
            return Joined(passed if half_s is None else half_s, passed, _left(home))
        if passed > 600:
            raise SystemExit(f"after 600 s {within} of {nodes} are in; {_left(home)} gave up and came again")
        time.sleep(0.25)


def _left(home: Path) -> int:
    """Connections that ended before they were in, as the link tells them."""
    said = (home / "logs" / "link.log").read_text(errors="replace")
    return said.count("left in the midst of a word") + said.count("is refused")


if __name__ == "__main__":
    main()
