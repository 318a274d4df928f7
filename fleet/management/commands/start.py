"""`llmgw start`: every model back as its definition asks, after `llmgw stop`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet import selectors
from fleet.management.commands.stop import show, wait_for_system, waits
from llmgw.cluster.actions import serving
from llmgw.cluster.commands import actor, answer


class Command(BaseCommand):
    help = "Bring every model back as its definition asks, after `llmgw stop` (`llmgw up` starts the processes)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        waits(parser, "until every model has its replicas again")

    def handle(self, *args: Any, wait: bool, timeout: float, as_json: bool, **options: Any) -> None:
        answer(lambda: _start(wait, timeout), show, as_json)


def _start(wait: bool, timeout_s: float) -> dict[str, Any]:
    serving.start(actor=actor())
    if wait:
        wait_for_system(timeout_s)
    return selectors.system()
