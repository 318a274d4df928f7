"""`python -m bench.ledger`: storms of parallel requests on a limit, at one edge and several; what came over it.

Exits 0 when nothing did, 1 when something did, 2 when nothing could be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.contenders import CannotStart
from bench.ledger.beside import litellm
from bench.ledger.world import KEY, MODEL, MOST_TOKENS, PROMPT, UNIT, Edge, World, engine, purse, world
from bench.peers import KEY as PEER_KEY
from tenancy.core.limits import Limits

EXAMPLES = """examples:
  python -m bench.ledger                    a budget, requests and tokens a minute, at 1, 2 and 4 edges
  python -m bench.ledger --edges 4 --faults kill an edge and Redis in the middle
  python -m bench.ledger --edges 1,2 --beside   and the same on LiteLLM, of whole minutes"""
BODY = {"model": MODEL, "max_tokens": MOST_TOKENS, "messages": [{"role": "user", "content": PROMPT}]}
WINDOW_S = 10.0
"""A minute, shortened: several of them must pass in a storm."""
RPM, TPM = 150, 12_000
BUDGET = 100 * UNIT // 1000
"""At a price of 0.001 a thousand tokens, and nine tenths of it spent."""
SMALL = 5
"""Beside LiteLLM the limits are so many times smaller: it does not get as far in a storm."""


@dataclass(frozen=True, slots=True)
class Outcome:
    whose: str
    storm: str
    edges: int
    asked: int
    admitted: int
    refused: int
    other: int
    limit: float
    most: float
    """What was used of it, in the fullest window."""

    @property
    def over(self) -> float:
        return max(0.0, self.most - self.limit)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ledger",
        description=__doc__.split("\n")[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--edges", default="1,2,4", help="numbers of edge processes (1,2,4)")
    parser.add_argument("--parallel", type=int, default=64, help="clients, each asking again and again (64)")
    parser.add_argument("--seconds", type=float, default=25.0, help="of a storm on a minute's limit (25)")
    parser.add_argument("--faults", action="store_true", help="kill -9 an edge, and then Redis, in each storm")
    parser.add_argument("--beside", action="store_true", help="LiteLLM in the same storms; all on whole minutes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found: list[Outcome] = []
    try:
        for edges in map(int, options.edges.split(",")):
            for storm in ("budget", "requests", "tokens"):
                for run in (_storm, _beside) if options.beside else (_storm,):
                    with tempfile.TemporaryDirectory(prefix="llmgw-storm-") as folder:
                        found.append(asyncio.run(run(storm, edges, Path(folder), options)))
                    print(f"bench: {found[-1]}", file=sys.stderr, flush=True)
    except (RuntimeError, CannotStart) as e:
        print(f"bench: {e}", file=sys.stderr)
        return 2
    print(_table(found))
    return 1 if any(one.over > 0 for one in found if one.whose == "llmgw") else 0


async def _storm(storm: str, edges: int, folder: Path, options: argparse.Namespace) -> Outcome:
    small = SMALL if options.beside else 1
    limits = {
        "budget": Limits(budget=BUDGET // small),
        "requests": Limits(rpm=RPM // small),
        "tokens": Limits(tpm=TPM // small),
    }[storm]
    spent = (limits.budget or 0) * 9 // 10
    async with engine(random.Random(options.seed), 0.02, 0.4) as port:
        with world(folder, edges) as here:
            window_s = 60.0 if options.beside else WINDOW_S
            level = here.publish(port, limits, window_s, spent)
            for edge in here.edges:
                edge.start()
            await _ready(here.edges)
            statuses: Counter[int] = Counter()
            stop = time.monotonic() + options.seconds
            faults = asyncio.create_task(_faults(here, options.seconds)) if options.faults else None
            async with httpx.AsyncClient(
                headers={"authorization": f"Bearer {KEY}"}, timeout=20, limits=httpx.Limits(max_connections=None)
            ) as client:
                calls = (_ask(client, here.edges[n % edges].port, stop, statuses) for n in range(options.parallel))
                await asyncio.gather(*calls)
            if faults is not None:
                await faults
            await asyncio.sleep(1.5)
            most: float
            if storm == "budget":
                with here.client() as redis:
                    most = int(redis.hget(purse(level), "s") or 0) / UNIT
                booked = spent / UNIT + sum(s.cost or 0 for _, s in here.settled()) / UNIT
                most = max(most, booked)
            else:
                most = _fullest(storm, here, window_s)
            limit = (limits.budget or 0) / UNIT or limits.rpm or limits.tpm or 0
            refused, admitted = statuses[429], statuses[200]
            asked = statuses.total()
            return Outcome("llmgw", storm, edges, asked, admitted, refused, asked - refused - admitted, limit, most)


async def _beside(storm: str, edges: int, folder: Path, options: argparse.Namespace) -> Outcome:
    """What LiteLLM lets through, by the answers' own counts; all of it is within a minute."""
    limits: dict[str, dict[str, float]] = {
        "budget": {"budget": BUDGET / UNIT / SMALL / 10},
        "requests": {"rpm": RPM // SMALL},
        "tokens": {"tpm": TPM // SMALL},
    }
    (limit,) = limits[storm].values()
    async with engine(random.Random(options.seed), 0.02, 0.4) as port:
        stack = contextlib.ExitStack()
        ports = await asyncio.to_thread(stack.enter_context, litellm(folder, edges, port, limits[storm]))
        with stack:
            statuses: Counter[int] = Counter()
            stop, tokens = time.monotonic() + options.seconds, [0]
            async with httpx.AsyncClient(
                headers={"authorization": f"Bearer {PEER_KEY}"}, timeout=20, limits=httpx.Limits(max_connections=None)
            ) as client:
                calls = (_ask(client, ports[n % edges], stop, statuses, tokens) for n in range(options.parallel))
                await asyncio.gather(*calls)
    used = {"budget": tokens[0] / 1e6, "requests": statuses[200], "tokens": tokens[0]}[storm]
    other = statuses.total() - statuses[200] - statuses[429]
    return Outcome("LiteLLM", storm, edges, statuses.total(), statuses[200], statuses[429], other, limit, used)


async def _ask(
    client: httpx.AsyncClient, port: int, stop: float, statuses: Counter[int], tokens: list[int] | None = None
) -> None:
    while time.monotonic() < stop:
        try:
            answer = await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=BODY)
            statuses[answer.status_code] += 1
            if tokens is not None and answer.status_code == 200:
                tokens[0] += answer.json()["usage"]["total_tokens"]
        except httpx.HTTPError:
            statuses[0] += 1
            await asyncio.sleep(0.1)
            continue
        if answer.status_code != 200:
            await asyncio.sleep(0.15)  # not what Retry-After says: a storm does not listen


async def _faults(here: World, seconds: float) -> None:
    """An edge is killed and started again, then Redis; both in the thick of it."""
    await asyncio.sleep(seconds * 0.3)
    here.edges[0].kill()
    here.edges[0].start()
    await asyncio.sleep(seconds * 0.3)
    here.kill_redis()
    await asyncio.sleep(0.2)
    await asyncio.to_thread(here.start_redis)


async def _ready(edges: list[Edge]) -> None:
    deadline = time.monotonic() + 60
    async with httpx.AsyncClient() as client:
        for edge in edges:
            while True:
                try:
                    if (await client.get(f"http://127.0.0.1:{edge.port}/ready")).status_code == 200:
                        break
                except httpx.HTTPError:
                    pass
                if time.monotonic() > deadline:
                    raise RuntimeError("an edge did not come up in 60 s")
                await asyncio.sleep(0.05)
    await asyncio.sleep(2.5)  # they have heard of one another


def _fullest(storm: str, here: World, window_s: float) -> float:
    """The most that was certainly within one window, from the books. A request was admitted between its coming and its
    leaving for the engine; its tokens are settled when it is over."""
    events = []
    for intent, s in here.settled():
        if s.dispatched_ms is None:
            continue
        if storm == "requests":
            events.append((intent.at, intent.at + s.dispatched_ms / 1000, 1))
        else:
            over = intent.at + s.duration_ms / 1000
            events.append((over, over, (s.prompt_tokens or 0) + (s.completion_tokens or 0)))
    return max(
        (
            sum(amount for first, last, amount in events if first >= begins and last <= begins + window_s)
            for begins, _, _ in events
        ),
        default=0,
    )


def _table(found: list[Outcome]) -> str:
    lines = [
        "| | storm on | edges | asked | admitted | refused | otherwise | limit | most in any window | over |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for o in found:
        lines.append(
            f"| {o.whose} | {o.storm} | {o.edges} | {o.asked} | {o.admitted} | {o.refused} | {o.other} | {o.limit:g} | "
            f"{o.most:.6g} | {o.over:.6g} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
