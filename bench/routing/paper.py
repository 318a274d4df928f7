"""`python -m bench.routing.paper`: the simulator's table, by policy and load. Seconds, and the same every time."""

from __future__ import annotations

import sys

from bench.routing import workload
from bench.routing.simulator import Job, Machine, World, cached_share, mean_ttft
from gateway.core import router

POLICIES = (router.ROUND_ROBIN, router.LEAST_LOAD, router.PREFIX, router.PREDICTED)
MACHINES = [Machine(cache_blocks=400)] * 4


def main() -> int:
    print("| requests a second | " + " | ".join(POLICIES) + " |")
    print("|---" * (len(POLICIES) + 1) + "|")
    for each_s in (0.02, 0.03, 0.05, 0.1):
        cells = []
        for policy in POLICIES:
            said = workload.turns(groups=12, each_s=each_s)
            rows = World(MACHINES, policy).run([Job(t.at, t.body("m"), t.answer_tokens) for t in said])
            p90 = sorted(row.ttft_s for row in rows)[int(0.9 * len(rows))]
            cells.append(f"{mean_ttft(rows) * 1000:.0f} / {p90 * 1000:.0f}, {cached_share(rows):.0%}")
        print(f"| {1 / each_s:.0f} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
