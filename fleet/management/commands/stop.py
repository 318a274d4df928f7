"""`llmgw stop`: every model taken down, every request answered 503, until `llmgw start`."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet import selectors, waiting
from llmgw.cluster.actions import serving
from llmgw.cluster.commands import actor, answer


class Command(BaseCommand):
    help = (
        "Take every model down and answer every request with 503 until `llmgw start`. The control plane, its pages and "
        "the agents go on (`llmgw down` ends those of this machine); no model's definition changes."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--note", default="", help="why; told to clients, kept in the audit")
        waits(parser, "until every replica is down")

    def handle(self, *args: Any, note: str, wait: bool, timeout: float, as_json: bool, **options: Any) -> None:
        answer(lambda: _stop(note, wait, timeout), show, as_json)


def waits(parser: CommandParser, until: str) -> None:
    parser.add_argument("--wait", action="store_true", help=f"wait {until}")
    parser.add_argument("--timeout", type=float, default=waiting.PATIENCE_S, help="seconds that --wait waits (1800)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")


def show(found: dict[str, Any]) -> None:
    note = f" ({found['note']})" if found["note"] else ""
    print(f"The system is {'stopped' if found['stopped'] else 'started'}{note}.")
    for line in [*found["waits_for"], *found["left"]]:
        print(f"  {line}")


def wait_for_system(timeout_s: float) -> None:
    def say(line: str) -> None:
        print(line, file=sys.stderr)

    waiting.until_none(lambda: selectors.system()["waits_for"], timeout_s, say, "llmgw status")


def _stop(note: str, wait: bool, timeout_s: float) -> dict[str, Any]:
    serving.stop(actor=actor(), note=note)
    if wait:
        wait_for_system(timeout_s)
    return selectors.system()
