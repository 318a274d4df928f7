"""`llmgw why`: one sentence about a request, key, model, replica or node, and what would change it."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from llmgw.cluster import why
from llmgw.cluster.commands import answer

_EXAMPLES = """examples:
  llmgw why req_01JDV8W5T2X9K4M7N0P3Q6R8S1
  llmgw why llmgw_Ab3dEf --model tiny
  llmgw why tiny
  llmgw why r-0123456789
  llmgw why n1 --noun node"""


class Command(BaseCommand):
    help = "Why something is so: a request, a key, a model, a replica or a node."
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, epilog=_EXAMPLES, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ref", metavar="NAME", help="an id or a name; of a key its id or first characters")
        parser.add_argument("--noun", choices=sorted(why.TELLERS), help="what it is, where a name could be several")
        parser.add_argument("--model", help="of a key: would it be let through to this model now?")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        answer(lambda: why.why(options["ref"], options["noun"], options["model"]), tell, options["as_json"])


def tell(found: dict[str, Any]) -> None:
    """As people read it: the answer, then what it rests on, each with the command that would change it."""
    print(found["sentence"])
    if found["command"]:
        print(f"  try: {found['command']}")
    for reason in found["reasons"]:
        print(f"- {reason['sentence']}")
        if reason["command"]:
            print(f"    {reason['command']}")
