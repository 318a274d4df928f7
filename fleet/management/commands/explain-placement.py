"""`llmgw explain-placement MODEL`: every candidate, and why not."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet import selectors
from llmgw.cluster.commands import answer, table


class Command(BaseCommand):
    help = "Where a model's next replica would go: every node under every profile, and why not."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="the model, by name or alias")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        answer(lambda: selectors.explain_placement(options["model"]), _show, options["as_json"])


MOST = 5
"""Commands that are shown: in a large cluster each node has its own."""


def _show(found: dict[str, Any]) -> None:
    print(f"{found['answer']}\n")
    rows = [
        {
            "node": c["node"],
            "profile": c["profile"],
            "score": c["score"],
            "verdict": "chosen"
            if c["chosen"]
            else "fits"
            if c["fits"]
            else "; ".join(r["sentence"] for r in c["reasons"]),
        }
        for c in found["candidates"]
    ]
    table(rows, ("node", "profile", "score", "verdict"))
    if found["fabrics"]:
        print("\nover several nodes:")
        rows = [{**g, "verdict": g["sentence"] if not g["nodes"] else "fits"} for g in found["fabrics"]]
        table(rows, ("fabric", "kind", "profile", "wanted", "fitting", "nodes", "verdict"))
    commands = {r["command"]: None for c in found["candidates"] for r in c["reasons"] if r["command"]}
    if commands and found["node"] is None:
        print("\nto change that:")
        print("\n".join(f"  {command}" for command in list(commands)[:MOST]))
    for profile, figures in found["learned"].items():
        if figures:
            said = ", ".join(f"{kind.replace('_', ' ')} {f['told']}" for kind, f in figures.items())
            print(f"\nmeasured here with profile {profile}: {said}")
    if found["replicas"]:
        print("\nnow:")
        table(found["replicas"], ("replica", "profile", "state", "node", "reason"))
