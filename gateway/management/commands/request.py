"""`llmgw request`: what was asked and how it went."""

from __future__ import annotations

from typing import Any

from gateway import selectors
from gateway.models import Usage
from llmgw.cluster.commands import NounCommand


class Command(NounCommand):
    help = "Requests: what was asked, who answered, what it took."
    examples = (
        "  llmgw request list --limit 20\n"
        "  llmgw request list --outcome engine_failed --json\n"
        "  llmgw request show req_01JDV8W5T2X9K4M7N0P3Q6R8S1"
    )

    def build(self) -> None:
        show = self.verb("show", selectors.request, "everything that is known of one request")
        show.add_argument("request_id", metavar="ID", help="as it was answered in x-request-id")
        found = self.verb("list", _list, "the newest requests first")
        found.add_argument("--limit", type=int, default=20)
        found.add_argument("--model", help="only of this model")
        found.add_argument("--outcome", choices=Usage.Outcome.values)
        found.add_argument("--project", metavar="ID", help="only of this project, by its id")


def _list(limit: int, model: str | None, outcome: str | None, project: str | None) -> list[dict[str, Any]]:
    return selectors.recent(limit=max(1, limit), model=model, outcome=outcome, project=project)
