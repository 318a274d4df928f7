"""`llmgw logs COMPONENT`: the end of a process's log on this machine."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    help = "The log of one of this machine's processes: edge, web, link, worker, beat, metrics, agent, redis, up."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("component")
        parser.add_argument("-n", "--lines", type=int, default=50)
        parser.add_argument("-f", "--follow", action="store_true", help="go on as the log grows, until Ctrl-C")

    def handle(self, *args: Any, component: str, lines: int, follow: bool, **options: Any) -> None:
        folder = settings.MACHINE.logs_dir
        known = sorted(path.stem for path in folder.glob("*.log"))
        if component not in known:
            raise SystemExit(f"llmgw: there is no log of {component!r}; there are: {', '.join(known) or 'none yet'}")
        with open(folder / f"{component}.log", errors="replace") as log:
            print("".join(log.readlines()[-lines:]), end="")
            try:
                while follow:
                    print(log.read(), end="", flush=True)
                    time.sleep(0.2)
            except KeyboardInterrupt:
                pass
