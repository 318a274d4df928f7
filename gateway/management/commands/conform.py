"""`llmgw conform URL`: what an endpoint keeps of the rules in docs/streams.md."""

from __future__ import annotations

import getpass
import os
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from gateway.conform.leaving import TOGETHER
from gateway.conform.run import GROUPS, NoModel, run
from gateway.conform.target import Target, Unreachable
from llmgw.cluster.commands import answer
from llmgw.cluster.errors import Invalid, Refusal

EXAMPLES = """examples:
  llmgw conform http://127.0.0.1:8080 --key-file ~/.llmgw-key
  llmgw conform https://api.example.org/v1 --key-env API_KEY --model orchid-8b --json
  llmgw conform 10.0.0.7:8101 --only streams --only leaving

exit codes: 0 every rule that could be judged held, 1 one is broken, 2 bad usage"""


class Command(BaseCommand):
    help = "Check an OpenAI-compatible endpoint, ours or an engine: what held, what did not, what could not be told."
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, epilog=EXAMPLES, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", help="the endpoint's address, with or without /v1")
        key = parser.add_mutually_exclusive_group()
        key.add_argument("--key-file", metavar="F", help="a file whose first line is the key")
        key.add_argument("--key-env", metavar="NAME", help="an environment variable that holds the key")
        key.add_argument("--key", metavar="WHERE", help="a file, env:NAME, or - to be asked: never the key itself")
        parser.add_argument("--model", default="", help="the model to ask (else the first that /v1/models lists)")
        parser.add_argument("--only", action="append", default=[], choices=sorted(GROUPS), help="a group of checks")
        parser.add_argument(
            "--together",
            type=int,
            default=TOGETHER,
            metavar="N",
            help="long requests begun at once, to see leaving",
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found: dict[str, Any] = {}

        def checked() -> dict[str, Any]:
            found.update(_checked(options))
            return found

        answer(checked, _show, options["as_json"])
        if not found["passed"]:
            raise SystemExit(1)


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    try:
        target = Target(options["url"], _key(options), options["model"])
    except ValueError as e:
        raise Invalid("not_an_address", str(e)) from None
    try:
        report = run(target, options["only"], options["together"])
    except Unreachable as e:
        raise Refusal("unreachable", f"nothing answers at {options['url']} ({e})") from None
    except NoModel as e:
        raise Refusal("no_model", str(e)) from None
    return {"url": options["url"], **report.document()}


def _key(options: dict[str, Any]) -> str:
    """From where the options say. What was given is not repeated in an error: it might be the key itself."""
    file, name, where = options["key_file"], options["key_env"], options["key"]
    if where == "-":
        return getpass.getpass("key: ").strip()
    if where and where.startswith("env:"):
        name = where.removeprefix("env:")
    elif where:
        file = where
    if name:
        found = os.environ.get(name, "").strip()
        if not found:
            raise Invalid("no_key", f"the environment variable {name[:60]} is not set")
        return found
    if not file:
        return ""
    try:
        lines = Path(file).expanduser().read_text().split()
    except (OSError, ValueError):
        lines = []
    if not lines:
        raise Invalid("no_key", "no key could be read from the file that was named: give a file, env:NAME, or -")
    return lines[0]


_MARKS = {"held": "held", "broken": "BROKEN", "open": "open"}


def _show(found: dict[str, Any]) -> None:
    print(f"{found['url']}, model {found['model']}\n")
    for rule in found["rules"]:
        print(f"{rule['rule']:4} {_MARKS[rule['verdict']]:7} {rule['title']}")
        if rule["said"]:
            print(f"{'':12} {rule['said']}")
    print(f"\n{found['held']} held, {found['broken']} broken, {found['open']} could not be told")
