"""`llmgw bench MODEL`: what one replica carries under its promise."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet.actions import bench
from fleet.core.capacity import Level
from llmgw.cluster.commands import actor, answer, table

_BAR = 40


class Command(BaseCommand):
    help = (
        "Send one replica more and more requests at once until its latency misses what is promised. This is real "
        "traffic beside that of others: run it against a cordoned replica, or when that is acceptable."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="the model, by name or alias")
        parser.add_argument("--replica", help="this one; else one on a cordoned node, or the first")
        parser.add_argument("--ttft", help="what the first token may take (99th percentile): 2s; else the model's slo")
        parser.add_argument("--tpot", help="what each further token may take (99th percentile): 80ms")
        parser.add_argument("--seconds", type=float, default=10.0, help="for each level (10)")
        parser.add_argument("--words", type=int, default=200, help="in each prompt (200)")
        parser.add_argument("--tokens", type=int, default=64, help="in each answer (64)")
        parser.add_argument("--most", type=int, default=256, help="requests at once (256)")
        parser.add_argument("--save", action="store_true", help="keep the figure with the model")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        answer(lambda: _bench(**{k: options[k] for k in _OPTIONS}), _show, as_json)


_OPTIONS = ("model", "replica", "ttft", "tpot", "seconds", "words", "tokens", "most", "save")


def _bench(
    model: str,
    replica: str | None,
    ttft: str | None,
    tpot: str | None,
    seconds: float,
    words: int,
    tokens: int,
    most: int,
    save: bool,
) -> dict[str, Any]:
    return bench.bench(
        name=model,
        replica=replica,
        slo=bench.promise(ttft, tpot),
        shape=bench.shaped(seconds=seconds, words=words, tokens=tokens, most=most),
        save=save,
        actor=actor(),
        told=_told,
    )


def _told(level: Level) -> None:
    print(f"{level.concurrency} at once: {level.tokens_per_s:.0f} tokens/s", file=sys.stderr)


def _show(found: dict[str, Any]) -> None:
    rows = [
        {
            "at_once": x["concurrency"],
            "tokens/s": f"{x['tokens_per_s']:.1f}",
            "requests/s": f"{x['requests_per_s']:.2f}",
            "ttft_p99": _seconds(x["ttft_p99_s"]),
            "tpot_p99": _seconds(x["tpot_p99_s"]),
            "waiting": x["waiting"],
            "kv": None if x["kv"] is None else f"{x['kv']:.0%}",
            "held": "held" if x["held"] else x["why"],
        }
        for x in found["levels"]
    ]
    table(rows)
    print()
    highest = max((x["tokens_per_s"] for x in found["levels"]), default=0.0) or 1.0
    for x in found["levels"]:
        bar = ("█" if x["held"] else "░") * max(round(x["tokens_per_s"] / highest * _BAR), 1)
        print(f"{x['concurrency']:>5} {bar} {x['tokens_per_s']:.0f}")
    print()
    if not found["metrics"]:
        print(
            "The engine publishes no metrics: it was measured from outside, and its queue and KV cache are not known."
        )
    if found["concurrency"] is None:
        print(f"{found['replica']} does not hold this promise with a single request.")
        return
    least = "at least " if found["climbs_on"] else ""
    print(
        f"{found['replica']} (profile {found['profile']}) carries {least}{found['concurrency']} requests at once, "
        f"{found['tokens_per_s']:.0f} tokens/s. In the profile: weight: {found['weight']:g}"
    )
    print("Kept with the model." if found["saved"] else "Keep it with --save.")


def _seconds(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
