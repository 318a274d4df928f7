"""What commands that ask an endpoint have alike: its address, and its key from where nobody else sees it."""

from __future__ import annotations

import getpass
import os
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from gateway.conform.target import Target
from llmgw.cluster.errors import Invalid


class EndpointCommand(BaseCommand):
    examples = ""
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, epilog=f"examples:\n{self.examples}", **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", help="the endpoint's address, with or without /v1")
        key = parser.add_mutually_exclusive_group()
        key.add_argument("--key-file", metavar="F", help="a file whose first line is the key")
        key.add_argument("--key-env", metavar="NAME", help="an environment variable that holds the key")
        key.add_argument("--key", metavar="WHERE", help="a file, env:NAME, or - to be asked: never the key itself")
        parser.add_argument("--model", default="", help="the model to ask (else the first that /v1/models lists)")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")


def target(options: dict[str, Any]) -> Target:
    """Raises `Invalid`."""
    try:
        return Target(options["url"], _key(options), options["model"])
    except ValueError as e:
        raise Invalid("not_an_address", str(e)) from None


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
