"""`python -m bench.routing.paper`: the simulator's tables, the same every time. Seconds.

By policy and load; and, where replicas keep their caches as llama.cpp does, by how much of a prompt must be in a slot
for the slot to be taken over, in workloads of several shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import mean

from bench.routing import workload
from bench.routing.simulator import Job, Machine, Row, World, cached_share, mean_ttft
from bench.routing.workload import SEED, Turn
from gateway.core import router

POLICIES = (router.ROUND_ROBIN, router.LEAST_LOAD, router.PREFIX, router.PREDICTED)
MACHINES = [Machine(cache_blocks=400)] * 4
SIMILARITIES = (0.1, 0.5, 0.6, 0.7, 0.8)
SEEDS = (SEED, 1, 2, 3)


def main() -> int:
    print("| requests a second | " + " | ".join(POLICIES) + " |")
    print("|---" * (len(POLICIES) + 1) + "|")
    for each_s in (0.02, 0.03, 0.05, 0.1):
        cells = []
        for policy in POLICIES:
            rows = World(MACHINES, policy).run(jobs(workload.turns(groups=12, each_s=each_s)))
            p90 = sorted(row.ttft_s for row in rows)[int(0.9 * len(rows))]
            cells.append(f"{mean_ttft(rows) * 1000:.0f} / {p90 * 1000:.0f}, {cached_share(rows):.0%}")
        print(f"| {1 / each_s:.0f} | " + " | ".join(cells) + " |")
    print("\n| workload | " + " | ".join(map(str, SIMILARITIES)) + " |")
    print("|---" * (len(SIMILARITIES) + 1) + "|")
    for name, drawn in SHAPES.items():
        cells = []
        for similarity in SIMILARITIES:
            ours, alone = slots(drawn, similarity, 4), slots(drawn, similarity, 1)
            share = mean(map(cached_share, ours))
            cells.append(
                f"{share:.1%}, {mean(map(mean_ttft, ours)) * 1000:.0f} ms ({mean(map(cached_share, alone)):.1%})"
            )
        print(f"| {name} | " + " | ".join(cells) + " |")
    return 0


def jobs(said: Sequence[Turn]) -> list[Job]:
    return [Job(t.at, t.body("m"), t.answer_tokens) for t in said]


def slots(drawn: Sequence[Sequence[Turn]], similarity: float, count: int) -> list[list[Row]]:
    """`count` replicas of two slots under `predicted`, once for each seed."""
    return [World([Machine(2, 8_000, similarity=similarity)] * count).run(jobs(said)) for said in drawn]


SHAPES = {
    "the lab's: long shared beginnings, few words a turn": [workload.lab(seed=seed) for seed in SEEDS],
    "agents: shared beginnings, twelve turns": [
        workload.turns(3, 5, 12, system_words=120, said_words=40, answer_tokens=20, each_s=0.4, seed=seed)
        for seed in SEEDS
    ],
    "nothing shared, eight turns": [
        workload.turns(6, 3, 8, system_words=5, said_words=25, answer_tokens=8, each_s=0.4, seed=seed) for seed in SEEDS
    ],
    "a document each turn, little shared": [
        workload.turns(6, 3, 3, system_words=30, said_words=120, answer_tokens=40, each_s=0.4, seed=seed)
        for seed in SEEDS
    ],
}


if __name__ == "__main__":
    sys.exit(main())
