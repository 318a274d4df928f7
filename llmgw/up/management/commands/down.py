"""`llmgw down`: end the `up` of this folder, engines included."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from llmgw.up import lock
from llmgw.up.supervisor import end_leftovers, leftovers


class Command(BaseCommand):
    help = "End what `llmgw up` runs from this folder, in order, engines included."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        machine = settings.MACHINE
        pid = lock.holder(machine.run_dir)
        if pid is None:
            if any(leftovers(machine.home)):
                end_leftovers(machine.home, print)
                return
            print("nothing runs from this folder")
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 90
        while Path(f"/proc/{pid}").exists() and lock.holder(machine.run_dir) == pid:
            if time.monotonic() > deadline:
                raise SystemExit(f"llmgw: pid {pid} has not ended in 90 s; its last words are in {machine.logs_dir}")
            time.sleep(0.1)
        print("ended")
