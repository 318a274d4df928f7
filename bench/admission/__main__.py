"""`python -m bench.admission`: who waits how long, in the order of arrival and in the gateway's queue; and what the
queue costs a request that need not wait.

Waits are of pretended time and the same on any machine; microseconds are of this one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.admission.cost import door_us
from bench.admission.simulator import FAIR, FIFO, PLACES, TOKENS_A_S, Tenant, run

SCENES: dict[str, tuple[float, tuple[Tenant, ...]]] = {
    "one project floods, another is quiet": (
        900,
        (Tenant("flood", 1.5, 400, burst=300), Tenant("quiet", 0.1, 400)),
    ),
    "both always have more, weights 1 and 3, requests of 1600 and 200 tokens": (
        900,
        (Tenant("heavy", 2.0, 1600, weight=1), Tenant("light", 2.0, 200, weight=3)),
    ),
    "a batch of 3000 is sent at once, people chat meanwhile": (
        3600,
        (Tenant("batch", 0, 400, band=2, burst=3000), Tenant("chat", 0.3, 400, band=0)),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bench.admission", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cost", action="store_true", help="only what it costs")
    options = parser.parse_args(arguments)
    if not options.cost:
        _waits()
    print("\n| replicas | requests let in | µs a request |\n|---|---|---|")
    for replicas, held in ((1, 0), (1, 40), (8, 300), (64, 1000)):
        print(f"| {replicas} | {held} | {door_us(replicas, held):.1f} |")
    return 0


def _waits() -> None:
    print(f"{PLACES} places of {TOKENS_A_S:.0f} tokens a second\n")
    print("| | queue | project | median wait s | p99 wait s | tokens, share | its last answer s |")
    print("|---|---|---|---|---|---|---|")
    for scene, (seconds, tenants) in SCENES.items():
        for policy in (FIFO, FAIR):
            told = run(tenants, policy, seconds)
            total = sum(t.tokens for t in told.values())
            for name, mine in told.items():
                print(
                    f"| {scene} | {policy} | {name} | {mine.wait(0.5):.1f} | {mine.wait(0.99):.1f} "
                    f"| {mine.tokens / total:.0%} | {mine.done_s:.0f} |"
                )
                scene = policy = ""


if __name__ == "__main__":
    raise SystemExit(main())
