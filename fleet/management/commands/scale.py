"""`llmgw scale MODEL`: how many replicas, changed while it is served."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.actions import life
from llmgw.cluster.commands import actor, answer


class Command(BaseCommand):
    help = "Change how many replicas a model has: at least --min, by its load up to --max. A stopped model starts."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="the model, by name or alias")
        parser.add_argument("--min", type=int, dest="least", help="always as many; 0 below --max: loaded on demand")
        parser.add_argument("--max", type=int, dest="most", help="at most as many, by its load")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(
        self, *args: Any, model: str, least: int | None, most: int | None, as_json: bool, **options: Any
    ) -> None:
        answer(lambda: asdict(life.scale(name=model, actor=actor(), least=least, most=most)), _show, as_json)


def _show(found: dict[str, Any]) -> None:
    span = str(found["min"]) if found["min"] == found["max"] else f"{found['min']} to {found['max']}"
    again = " and started" if found["started"] else ""
    gone = f"; {' and '.join(found['dropped'])} went, for it no longer loads on demand" if found["dropped"] else ""
    print(f"{found['name']}: scaled to {span} replica{'' if span == '1' else 's'}{again}{gone}")
