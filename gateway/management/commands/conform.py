"""`llmgw conform URL`: what an endpoint keeps of the rules in docs/streams.md."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from gateway.conform.leaving import TOGETHER
from gateway.conform.run import GROUPS, NoModel, run
from gateway.conform.target import Unreachable
from gateway.management.endpoint import EndpointCommand, target
from llmgw.cluster.commands import answer
from llmgw.cluster.errors import Refusal


class Command(EndpointCommand):
    help = "Check an OpenAI-compatible endpoint, ours or an engine: what held, what did not, what could not be told."
    examples = """  llmgw conform http://127.0.0.1:8080 --key-file ~/.llmgw-key
  llmgw conform https://api.example.org/v1 --key-env API_KEY --model orchid-8b --json
  llmgw conform 10.0.0.7:8101 --only streams --only leaving

exit codes: 0 every rule that could be judged held, 1 one is broken, 2 bad usage"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--only", action="append", default=[], choices=sorted(GROUPS), help="a group of checks")
        parser.add_argument(
            "--together",
            type=int,
            default=TOGETHER,
            metavar="N",
            help="long requests begun at once, to see leaving",
        )

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
        report = run(target(options), options["only"], options["together"])
    except Unreachable as e:
        raise Refusal("unreachable", f"nothing answers at {options['url']} ({e})") from None
    except NoModel as e:
        raise Refusal("no_model", str(e)) from None
    return {"url": options["url"], **report.document()}


_MARKS = {"held": "held", "broken": "BROKEN", "open": "open"}


def _show(found: dict[str, Any]) -> None:
    print(f"{found['url']}, model {found['model']}\n")
    for rule in found["rules"]:
        print(f"{rule['rule']:4} {_MARKS[rule['verdict']]:7} {rule['title']}")
        if rule["said"]:
            print(f"{'':12} {rule['said']}")
    print(f"\n{found['held']} held, {found['broken']} broken, {found['open']} could not be told")
