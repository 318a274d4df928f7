"""`python -m bench.routing`: the frozen workload on real llama.cpp replicas, once under each policy, as one table.

Cached tokens first: they are the engines' own counts and depend little on what else the machine does. Times depend on
it much: of `--rounds` each goes through the policies the other way round, and what is set against one another was
measured side by side. Exits 0, or 1 when a request was not answered, or 2 when nothing could be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.contenders import CannotStart
from bench.edge import KEY
from bench.routing import workload
from bench.routing.replicas import CONTEXT, MODEL, PARALLEL, replicas
from bench.routing.slots import SIMILARITY
from bench.routing.workload import Turn
from gateway.core import router

POLICIES = (router.ROUND_ROBIN, router.LEAST_LOAD, router.PREFIX, router.PREDICTED)
OTHERS = ("sglang", "sglang-cache")
"""sglang-router, in turn and by its own cache-aware policy, on the same replicas."""
EXAMPLES = """examples:
  python -m bench.routing                        four replicas, four policies: some three minutes
  python -m bench.routing --quick                two replicas, a third of the requests
  python -m bench.routing --policies prefix,predicted --sessions
  python -m bench.routing --others               beside sglang-router, which is installed apart when first asked for
  python -m bench.routing --policies round_robin,predicted --others --rounds 3 --similarity 0.7"""


@dataclass(frozen=True, slots=True)
class Answer:
    replica: str
    ttft_s: float
    prompt: int
    cached: int
    completion: int
    done_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bench.routing", description=__doc__, epilog=EXAMPLES)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--policies", default=",".join(POLICIES), help="which, in this order")
    parser.add_argument("--others", action="store_true", help=f"also {' and '.join(OTHERS)}: sglang-router")
    parser.add_argument("--each-s", type=float, default=0.4, help="mean time between two requests")
    parser.add_argument("--sessions", action="store_true", help="send x-session-id")
    parser.add_argument("--quick", action="store_true", help="a first look")
    parser.add_argument("--rounds", type=int, default=1, help="how often, each the other way round")
    parser.add_argument("--seed", type=int, default=workload.SEED, help="of another workload of the same shape")
    parser.add_argument(
        "--similarity", type=float, default=SIMILARITY, help="--slot-prompt-similarity of the engines (%(default)s)"
    )
    options = parser.parse_args(arguments)
    count = 2 if options.quick else options.replicas
    said = workload.lab(2 if options.quick else 6, each_s=options.each_s, seed=options.seed)
    print(f"{len(said)} requests, {count} llama.cpp replicas × {PARALLEL} places, {CONTEXT} tokens of context")
    print(f"workload seed {options.seed}; one request every {options.each_s} s; one thread a replica", end="")
    print(f"; slot similarity {options.similarity}\n")
    print("| policy | cached tokens | mean TTFT ms | p90 TTFT ms | output tokens/s | requests by replica |")
    print("|---|---|---|---|---|---|", flush=True)
    policies = [*options.policies.split(","), *(OTHERS if options.others else ())]
    found: dict[str, list[Answer]] = {policy: [] for policy in policies}
    failed = 0
    for number in range(options.rounds):
        for policy in policies[:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory(prefix="llmgw-routing-") as scratch:
                try:
                    with replicas(count, policy, Path(scratch), options.similarity) as port:
                        answers, errors = asyncio.run(_drive(port, said, options.sessions))
                except CannotStart as e:
                    print(f"bench.routing: {e}", file=sys.stderr)
                    if policy in OTHERS:
                        continue
                    return 2
            failed += len(errors)
            found[policy] += answers
            print(_line(policy, answers), flush=True)
            for error in errors[:3]:
                print(f"bench.routing: {error}", file=sys.stderr)
    _against(found)
    return 1 if failed else 0


def _against(found: dict[str, list[Answer]]) -> None:
    """What `predicted` came to over all rounds, beside each of the others."""
    waits = {policy: sum(a.ttft_s for a in answers) / len(answers) for policy, answers in found.items() if answers}
    ours = waits.pop(router.PREDICTED, None)
    if ours is not None and waits:
        said = ", ".join(f"{ours / theirs:.2f} × {policy}" for policy, theirs in waits.items())
        print(f"\nmean TTFT of {router.PREDICTED}: {ours * 1000:.0f} ms = {said}")


async def _drive(port: int, said: Sequence[Turn], sessions: bool) -> tuple[list[Answer], list[str]]:
    """Each request at its time, whether the ones before it are answered or not."""
    answers: list[Answer] = []
    errors: list[str] = []
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client:
        began = time.perf_counter()

        async def send(turn: Turn) -> None:
            await asyncio.sleep(max(0.0, turn.at - (time.perf_counter() - began)))
            try:
                answers.append(await _ask(client, turn, sessions, began))
            except (httpx.HTTPError, ValueError, KeyError) as e:
                errors.append(f"{turn.session} turn {turn.number}: {e}")

        await asyncio.gather(*(send(turn) for turn in said))
    return answers, errors


async def _ask(client: httpx.AsyncClient, turn: Turn, sessions: bool, began: float) -> Answer:
    body = json.loads(turn.body(MODEL)) | {"stream_options": {"include_usage": True}}
    sent, first = time.perf_counter(), 0.0
    usage: dict[str, Any] = {}
    headers = {"x-session-id": turn.session} if sessions else {}
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        if answer.status_code != 200:
            raise ValueError(f"status {answer.status_code}: {(await answer.aread())[:200]!r}")
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter()
                usage = json.loads(line[6:]).get("usage") or usage
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    done = time.perf_counter() - began
    replica = answer.headers.get("x-llmgw-replica", "not told")
    return Answer(replica, first - sent, usage["prompt_tokens"], cached, usage["completion_tokens"], done)


def _line(policy: str, answers: Sequence[Answer]) -> str:
    if not answers:
        return f"| {policy} | nothing was answered | | | | |"
    waits = sorted(a.ttft_s * 1000 for a in answers)
    share = sum(a.cached for a in answers) / sum(a.prompt for a in answers)
    rate = sum(a.completion for a in answers) / max(a.done_s for a in answers)
    spread = "/".join(str(n) for _, n in sorted(Counter(a.replica for a in answers).items()))
    p90 = waits[min(len(waits) - 1, int(0.9 * len(waits)))]
    return f"| {policy} | {share:.1%} | {sum(waits) / len(waits):.0f} | {p90:.0f} | {rate:.1f} | {spread} |"


if __name__ == "__main__":
    sys.exit(main())
