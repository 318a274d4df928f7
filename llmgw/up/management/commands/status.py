"""`llmgw status`: what runs, what serves, who is connected."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from llmgw.cluster.commands import answer, table
from llmgw.up import status


class Command(BaseCommand):
    help = "What runs on this cluster now: processes, nodes, replicas, requests."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        answer(status.gather, _show, as_json)


def _show(found: dict[str, Any]) -> None:
    print(f"portal      {found['portal']}")
    print(f"processes   {', '.join(found['components']) or 'none on this machine: llmgw up'}")
    system = found["system"]
    if system["stopped"]:
        note = f" ({system['note']})" if system["note"] else ""
        print(f"system      stopped{note} by {system['actor'] or 'the settings'}: llmgw start")
        for line in [*system["waits_for"], *system["left"]]:
            print(f"            {line}")
    live = found["live"]
    if live is not None:
        for name, model in live["models"].items():
            rate = live["tokens_per_s"].get(name, 0.0)
            print(f"model       {name}: {model['in_flight']} requests now, {rate:.0f} tokens/s")
    print()
    table(found["nodes"], ("node", "state", "address", "replicas", "engines", "last_seen", "reason"))
    print()
    table(found["replicas"], ("replica", "model", "state", "node", "since", "reason"))
