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
from pathlib import Path
from typing import Any


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


def _run(asked: argparse.Namespace, home: Path) -> dict[str, Any]:
    from llmgw.rehearsal import home as own_home

    own_home.prepare(home)
    for name in [n for n in os.environ if n.startswith("LLMGW_")]:
        del os.environ[name]
    from llmgw.rehearsal.ports import free_ports

    ports = free_ports(3)
    os.environ.update(
        LLMGW_HOME=str(home),
        DJANGO_SETTINGS_MODULE="llmgw.settings",
        **dict(zip(("PORT", "LINK_PORT", "METRICS_PORT"), map(str, ports), strict=True)),
    )
    import django

    django.setup()
    from django.conf import settings

    from fleet import models
    from llmgw.rehearsal.conduct import Rehearsal
    from llmgw.rehearsal.control import cpu_and_memory
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
        (link,) = control.pids(["link"])

        def used() -> tuple[float, int]:
            return cpu_and_memory([link])

        def all_pids() -> list[int]:
            return list(control.pids())

        cpu_before, memory_before = used()
        whole_before, _ = cpu_and_memory(all_pids())
        fleet_before = machines.seen().cpu_s
        began = time.monotonic()
        machines.tell("start", within_s=asked.within)
        half_s = None
        while True:
            within = models.Node.objects.filter(connected=True).exclude(reported_at=None).count()
            if half_s is None and within >= asked.nodes / 2:
                half_s = time.monotonic() - began
            if within >= asked.nodes:
                break
            if time.monotonic() - began > 600:
                raise SystemExit(f"after 600 s {within} of {asked.nodes} are in; {_left(home)} gave up and came again")
            time.sleep(0.25)
        all_s = time.monotonic() - began
        cpu_in, memory_in = used()
        whole_in, _ = cpu_and_memory(all_pids())
        fleet_in = machines.seen().cpu_s
        came_again = _left(home)
        time.sleep(5)
        cpu_a, _ = used()
        whole_a, _ = cpu_and_memory(all_pids())
        fleet_a = machines.seen().cpu_s
        steady_from = time.monotonic()
        time.sleep(asked.steady)
        passed = time.monotonic() - steady_from
        cpu_b, memory_b = used()
        whole_b, _ = cpu_and_memory(all_pids())
        fleet_b = machines.seen().cpu_s
        still = models.Node.objects.filter(connected=True).count()
    return {
        "nodes": asked.nodes,
        "half_in_s": round(half_s or all_s, 1),
        "all_in_s": round(all_s, 1),
        "came_again": came_again,
        "link_cpu_to_join_s": round(cpu_in - cpu_before, 1),
        "link_cpu_a_join_ms": round(1000 * (cpu_in - cpu_before) / asked.nodes, 1),
        "control_plane_cpu_to_join_s": round(whole_in - whole_before, 1),
        "agents_cpu_to_join_s": round(fleet_in - fleet_before, 1),
        "link_memory_mb": round(memory_b / 2**20),
        "link_memory_a_node_kb": round((memory_in - memory_before) / asked.nodes / 1024),
        "steady_link_cpu_percent": round(100 * (cpu_b - cpu_a) / passed, 1),
        "steady_control_plane_cpu_percent": round(100 * (whole_b - whole_a) / passed, 1),
        "steady_agents_cpu_percent": round(100 * (fleet_b - fleet_a) / passed, 1),
        "connected_at_the_end": still,
        "load_average": round(os.getloadavg()[0], 1),
    }


def _left(home: Path) -> int:
    """Connections that ended before they were in, as the link tells them."""
    said = (home / "logs" / "link.log").read_text(errors="replace")
    return said.count("left in the midst of a word") + said.count("is refused")


if __name__ == "__main__":
    main()
