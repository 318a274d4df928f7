"""`llmgw up`: everything on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from llmgw.cluster.errors import Refusal
from llmgw.up import lock
from llmgw.up.run import Up
from llmgw.up.terminal import Teller


class Command(BaseCommand):
    help = "Run all of llmgw on this machine: control plane, gateway, portal, and this machine as a node."
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(
            prog_name,
            subcommand,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="examples:\n  llmgw up\n  llmgw up --once\n  PORT=9000 llmgw up --starter qwen2.5-0.5b\n"
            "  llmgw up --detach && llmgw status && llmgw down",
            **kwargs,
        )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="end everything after the first answer")
        parser.add_argument("--detach", action="store_true", help="stay in the background; `llmgw down` ends it")
        parser.add_argument(
            "--starter",
            default="",
            metavar="MODEL",
            help="tiny (ships with llmgw), qwen2.5-0.5b, or hf:OWNER/REPO/FILE.gguf",
        )

        parser.add_argument(
            "--without-node", action="store_true", help="the control plane and the gateway only: no engine runs here"
        )

    def handle(self, *args: Any, once: bool, detach: bool, starter: str, without_node: bool, **options: Any) -> None:
        if detach:
            raise SystemExit(_detach(starter, without_node))
        try:
            code = Up(settings.MACHINE, starter, once, Teller(), node=not without_node).run()
        except Refusal as e:
            print(f"llmgw: {e.reason.sentence}", file=sys.stderr)
            if e.reason.command:
                print(f"  try: {e.reason.command}", file=sys.stderr)
            code = e.exit_code
        raise SystemExit(code)


def _detach(starter: str, without_node: bool) -> int:
    """`up` in a session of its own, its output followed until it serves or ends."""
    machine = settings.MACHINE
    if (pid := lock.holder(machine.run_dir)) is not None:
        print(f"llmgw: already runs from this folder (pid {pid})", file=sys.stderr)
        return 1
    machine.logs_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = machine.logs_dir / "up.log"
    # The log of a detached run shows the first key once, so it is closed to others and emptied when read out.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    arguments = [sys.executable, sys.argv[0], "up", *(["--starter", starter] if starter else [])]
    arguments += ["--without-node"] if without_node else []
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
    )
    with os.fdopen(descriptor, "rb") as log:
        position, text = 0, b""
        while b"Ctrl-C ends everything" not in text and process.poll() is None:
            time.sleep(0.1)
            text = os.pread(log.fileno(), 1 << 20, 0)
            print(text[position:].decode(errors="replace"), end="", flush=True)
            position = len(text)
        if process.poll() is None:
            os.truncate(path, 0)
            print(f"in the background as pid {process.pid}; `llmgw down` ends it")
    return process.poll() or 0
