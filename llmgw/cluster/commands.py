"""The one base of every command: sub-commands, `--json`, tables, refusals as a sentence and an exit code.

Exit codes: 0 done, 1 refused or failed, 2 bad usage or input.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError, ProgrammingError

from llmgw.cluster.errors import Refusal

Handler = Callable[..., Any]
WATCH_S = 2.0


def actor() -> str:
    """Who runs a command, for the audit log."""
    try:
        return f"{getpass.getuser()} (command)"
    except (KeyError, OSError):
        return "command"


class NounCommand(BaseCommand):
    """A noun with verbs. A subclass fills `verbs` in `build` by `self.verb(...)`.

    A verb's function gets its options as keyword arguments and returns what `--json` prints: a dict, or a list
    of dicts shown as a table. Its `show` may print it for people instead.
    """

    examples = ""
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        epilog = f"examples:\n{self.examples}" if self.examples else None
        parser = super().create_parser(prog_name, subcommand, epilog=epilog, **kwargs)
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        self._verbs = parser.add_subparsers(
            dest="verb", metavar="VERB", required=True, parser_class=argparse.ArgumentParser
        )
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def verb(
        self, name: str, run: Handler, help: str, show: Callable[[Any], None] | None = None, watch: bool = False
    ) -> argparse.ArgumentParser:
        """`watch`: it may be asked to go on, with what is true then, each `WATCH_S`."""
        parser: argparse.ArgumentParser = self._verbs.add_parser(name, help=help, description=help)
        if watch:
            parser.add_argument("--watch", action="store_true", help=f"again every {WATCH_S:g} s, until Ctrl-C")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        parser.set_defaults(run=run, show=show)
        return parser

    def handle(self, *args: Any, **options: Any) -> None:
        plain = {"verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color", "skip_checks", "verb"}
        run, show, as_json = options.pop("run"), options.pop("show"), options.pop("as_json")
        again = options.pop("watch", False)
        chosen = {k: v for k, v in options.items() if k not in plain}
        try:
            while True:
                if again and sys.stdout.isatty():
                    print("\x1b[H\x1b[2J", end="")
                answer(lambda: run(**chosen), show, as_json)
                sys.stdout.flush()
                if not again:
                    break
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            if not again:
                raise
        except BrokenPipeError:  # the reader (`head`, `less`) has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def answer(run: Callable[[], Any], show: Callable[[Any], None] | None, as_json: bool) -> None:
    """Run it and print what it returned; a refusal becomes one line on stderr and its exit code."""
    try:
        found = run()
    except Refusal as e:
        if as_json:
            print(
                json.dumps(
                    {"error": {"code": e.reason.code, "message": e.reason.sentence, "command": e.reason.command}}
                )
            )
        else:
            print(f"llmgw: {e.reason.sentence}", file=sys.stderr)
            if e.reason.command:
                print(f"  try: {e.reason.command}", file=sys.stderr)
        raise SystemExit(e.exit_code) from None
    except (OperationalError, ProgrammingError) as e:
        print(f"llmgw: {store_sentence(e)}", file=sys.stderr)
        raise SystemExit(1) from None
    if found is None:
        return
    if as_json:
        print(json.dumps(found, default=_json, ensure_ascii=False, indent=2))
    elif show is not None:
        show(found)
    elif isinstance(found, list):
        table(found)
    else:
        for name, value in found.items():
            print(f"{name + ':':<16} {cell(value)}")


def table(rows: Sequence[dict[str, Any]], columns: Iterable[str] | None = None) -> None:
    """Rows as a table with upper-case heads; a figure that nobody knows is a dash."""
    if not rows:
        print("(none)")
        return
    names = list(columns or rows[0])
    cells = [[cell(row.get(n)) for n in names] for row in rows]
    widths = [max(len(n), *(len(c[i]) for c in cells)) for i, n in enumerate(names)]
    print("  ".join(n.upper().replace("_", " ").ljust(w) for n, w in zip(names, widths, strict=True)).rstrip())
    for row_cells in cells:
        print("  ".join(c.ljust(w) for c, w in zip(row_cells, widths, strict=True)).rstrip())


def cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, (list, tuple)):
        return ", ".join(map(cell, value)) or "-"
    if isinstance(value, dict):
        return " ".join(f"{k}={cell(v)}" for k, v in value.items()) or "-"
    return str(value)


def store_sentence(error: Exception) -> str:
    """A store that is not there yet, or not to be reached, in words."""
    told = str(error).splitlines()[0]
    if "no such table" in told or "does not exist" in told or "no such column" in told:
        return f"the store is not set up for this version ({told}): run llmgw up, or llmgw migrate"
    return f"the store cannot be used: {told}"


def _json(value: Any) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return str(value)
