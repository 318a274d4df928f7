"""`llmgw request`: what was asked and how it went."""

from __future__ import annotations

from typing import Any

from gateway import selectors
from gateway.management.commands.why import tell
from gateway.models import Usage
from llmgw.cluster import why
from llmgw.cluster.commands import NounCommand, cell


class Command(NounCommand):
    help = "Requests: what was asked, who answered, what it took."
    examples = (
        "  llmgw request list --limit 20\n"
        "  llmgw request list --outcome engine_failed --json\n"
        "  llmgw request show req_01JDV8W5T2X9K4M7N0P3Q6R8S1"
    )

    def build(self) -> None:
        show = self.verb("show", _show, "what became of one request, in a sentence and in full", show=_shown)
        show.add_argument("request_id", metavar="ID", help="as it was answered in x-request-id")
        found = self.verb("list", _list, "the newest requests first")
        found.add_argument("--limit", type=int, default=20)
        found.add_argument("--model", help="only of this model")
        found.add_argument("--outcome", choices=Usage.Outcome.values)
        found.add_argument("--project", metavar="ID", help="only of this project, by its id")


def _show(request_id: str) -> dict[str, Any]:
    found = selectors.request(request_id)
    return {**found, "why": why.why(request_id, "request")}


def _shown(found: dict[str, Any]) -> None:
    tell(found.pop("why"))
    print()
    for name, value in found.items():
        print(f"{name.replace('_', ' ') + ':':<20} {cell(value)}")


def _list(limit: int, model: str | None, outcome: str | None, project: str | None) -> list[dict[str, Any]]:
    return selectors.recent(limit=max(1, limit), model=model, outcome=outcome, project=project)
