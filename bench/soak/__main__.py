"""`python -m bench.soak`: mixed load for 30 minutes, then a verdict; exits 1 where something stayed behind."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench import processes
from bench.contenders import CannotStart
from bench.edge import compiled, edge, parts
from bench.processes import Cores
from bench.soak import plot, verdict
from bench.soak.clients import Seen, crowd
from bench.soak.engine import moody
from bench.soak.watch import Sample, Watch
from gateway.core.snapshot import Policies
from llmgw import machine

OUT = Path(__file__).parent.parent / "out"
REST_S = 15.0
"""At most, until what the last request left is gone: kept connections rest four seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compiled", action="store_true", help="on the compiled inference path")
    options = parser.parse_args()
    which = processes.cores() or Cores(0, 0)
    with tempfile.TemporaryDirectory(prefix="llmgw-soak-") as scratch:
        try:
            builds = compiled(lambda _: None) if options.compiled else None
            found = asyncio.run(_soak(options.minutes * 60, options.seed, which, Path(scratch), builds))
        except CannotStart as e:
            print(f"soak: {e}", file=sys.stderr)
            return 2
    for line in found:
        print(f"{'ok  ' if line.good else 'FAIL'} {line.what}: {line.found}")
    return 0 if all(line.good for line in found) else 1


async def _soak(seconds: float, seed: int, which: Cores, scratch: Path, builds: Path | None) -> list[verdict.Line]:
    """`builds`: where the compiled path lies; None: the edge runs from its sources."""
    samples: list[Sample] = []
    seen, began = Seen(), time.monotonic()
    async with moody(seed) as engine:
        with ExitStack() as stack:
            policies = Policies(1, retries=2, connect_timeout_s=2.0)
            home = scratch / "home"
            other = {**parts(engine), "policies": policies}
            running = await asyncio.to_thread(
                lambda: stack.enter_context(edge(engine, which, home, other=other, compiled=builds))
            )
            watch = Watch(running, machine.Machine(home=home).redis_url)

            async def look(at_rest: bool) -> Sample:
                samples.append(await asyncio.to_thread(watch.sample, time.monotonic() - began, at_rest))
                return samples[-1]

            async def load(for_s: float) -> None:
                stop, until = asyncio.Event(), time.monotonic() + for_s
                clients = asyncio.create_task(crowd(running.contender.port, seen, stop, seed))
                while time.monotonic() < until and not clients.done():
                    await asyncio.sleep(min(1.0, for_s / 20))
                    await look(at_rest=False)
                stop.set()
                await clients

            async def rest(few: Sample | None) -> None:
                until = time.monotonic() + REST_S
                while time.monotonic() < until:
                    await asyncio.sleep(1.0)
                    now = await look(at_rest=True)
                    quiet = not now.in_flight and not watch.open and time.monotonic() > until - REST_S + 6.0
                    if quiet and (few is None or (now.descriptors <= few.descriptors and now.tasks <= few.tasks)):
                        return

            await look(at_rest=True)
            await load(max(3.0, seconds * 0.05))  # what is made once is made by now
            await rest(None)
            before = samples[-1]
            await load(seconds)
            await rest(before)
    wrong = [f"{kind}: {count} of {seen.asked[kind]} ({seen.said[kind]})" for kind, count in seen.wrong.items()]
    OUT.mkdir(exist_ok=True)
    stem = OUT / f"soak-{time.strftime('%Y%m%d-%H%M%S')}"
    stem.with_suffix(".svg").write_text(plot.svg(samples))
    stem.with_suffix(".json").write_bytes(msgspec.json.encode({"asked": seen.asked, "samples": samples}))
    print(f"{sum(seen.asked.values()):,} requests: " + ", ".join(f"{n:,} {k}" for k, n in seen.asked.items()))
    return verdict.lines(samples, wrong, watch.settled, len(watch.open), watch.twice)


if __name__ == "__main__":
    sys.exit(main())
