"""`llmgw engine-check ENGINE --bin PATH`: the same as `llmgw engine check`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet.management.commands.engine import add_check, check, checked
from llmgw.cluster.commands import answer


class Command(BaseCommand):
    help = "Whether an installed engine takes the flags that llmgw builds for it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add_check(parser)
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        answer(lambda: check(options["engine"], options["bin"], options["node"]), checked, options["as_json"])
