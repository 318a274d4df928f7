"""`llmgw tool-check URL`: an engine that did not parse a tool call, told from a model that ignores its tools."""

from __future__ import annotations

from typing import Any

from gateway.conform.target import Unreachable
from gateway.conform.tools import run
from gateway.management.endpoint import EndpointCommand, target
from llmgw.cluster.commands import answer, table
from llmgw.cluster.errors import Refusal


class Command(EndpointCommand):
    help = "Ask a model for tool calls, and tell whether the engine parses them or the model ignores its tools."
    examples = """  llmgw tool-check http://127.0.0.1:8080 --key-file ~/.llmgw-key --model orchid-8b
  llmgw tool-check http://10.0.0.7:8101 --key env:ENGINE_KEY --json

exit codes: 0 tool calls work, 1 they do not, 2 bad usage"""

    def handle(self, *args: Any, **options: Any) -> None:
        found: dict[str, Any] = {}

        def checked() -> dict[str, Any]:
            try:
                found.update({"url": options["url"], **run(target(options)).document()})
            except Unreachable as e:
                raise Refusal("unreachable", f"nothing answers at {options['url']} ({e})") from None
            return found

        answer(checked, _show, options["as_json"])
        if not found["works"]:
            raise SystemExit(1)


def _show(found: dict[str, Any]) -> None:
    engine = f", engine {found['engine']}" if found["engine"] else ""
    print(f"{found['url']}, model {found['model']}{engine}\n")
    table(found["questions"], ("question", "verdict", "said"))
    print(f"\n{found['sentence']}")
    if found["fix"]:
        print(found["fix"])
