"""`llmgw request`: what was asked and how it went."""

from __future__ import annotations

import shutil
from typing import Any

from gateway import selectors
from gateway.actions import kept
from gateway.control.kept import Bodies
from gateway.core import answers, compare
from gateway.core.answers import Answer
from gateway.core.telling import span
from gateway.management.commands.why import tell
from gateway.models import Usage
from llmgw.cluster import why
from llmgw.cluster.commands import NounCommand, actor, cell, table
from llmgw.money import written


class Command(NounCommand):
    help = "Requests: what was asked, who answered, what it took."
    examples = (
        "  llmgw request list --limit 20\n"
        "  llmgw request list --outcome engine_failed --json\n"
        "  llmgw request show req_01JDV8W5T2X9K4M7N0P3Q6R8S1\n"
        "  llmgw request show req_01JDV8W5T2X9K4M7N0P3Q6R8S1 --body\n"
        "  llmgw request replay req_01JDV8W5T2X9K4M7N0P3Q6R8S1 orchid-8b"
    )

    def build(self) -> None:
        show = self.verb("show", _show, "what became of one request, in a sentence and in full", show=_shown)
        show.add_argument("request_id", metavar="ID", help="as it was answered in x-request-id")
        show.add_argument("--body", action="store_true", help="what was sent and answered, where its project keeps it")
        found = self.verb("list", _list, "the newest requests first")
        found.add_argument("--limit", type=int, default=20)
        found.add_argument("--model", help="only of this model")
        found.add_argument("--outcome", choices=[*Usage.Outcome.values, selectors.ANY_FAILURE])
        found.add_argument("--project", metavar="ID", help="only of this project, by its id")
        replay = self.verb("replay", _replay, "send a kept request once more, to another model", show=_replayed)
        replay.add_argument("request_id", metavar="ID", help="a request that its project keeps")
        replay.add_argument("model", metavar="MODEL", help="who answers this time, by name or alias")


_MONEY = ("cost", "saved")


def _show(request_id: str, body: bool) -> dict[str, Any]:
    found = selectors.request(request_id)
    shown = {**found, "why": why.why(request_id, "request")}
    return {**shown, "body": _bodies(kept.read(request_id=request_id, actor=actor()))} if body else shown


def _bodies(found: Bodies) -> dict[str, Any]:
    return {
        "request": found.request.decode(errors="replace"),
        "answer": found.answer.decode(errors="replace"),
        "whole": found.whole,
        "text": answers.read(found.answer).text,
    }


def _shown(found: dict[str, Any]) -> None:
    tell(found.pop("why"))
    body = found.pop("body", None)
    print()
    for name, value in found.items():
        shown = written(value) if name in _MONEY and value is not None else cell(value)
        print(f"{name.replace('_', ' ') + ':':<20} {shown}")
    if body is not None:
        print(f"\nas the model was sent it:\n{body['request']}")
        print(f"\nas it was answered{'' if body['whole'] else ' (its beginning)'}:\n{body['text'] or body['answer']}")


def _replay(request_id: str, model: str) -> dict[str, Any]:
    before = selectors.request(request_id)
    was = kept.read(request_id=request_id, actor=actor())
    now = kept.replay(request_id=request_id, model=model, actor=actor())
    first, second = answers.read(was.answer), now.answer
    return {
        "before": {"request": request_id, "model": before["served"] or before["model"], "status": before["status"]}
        | _figures(first, before["ttft_ms"], before["duration_ms"]),
        "now": {"request": now.id, "model": now.model, "status": now.status}
        | _figures(second, now.ttft_ms, now.duration_ms),
        "alike": round(compare.alike(first.text, second.text), 3),
    }


def _figures(answer: Answer, ttft_ms: float | None, duration_ms: float | None) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.prompt if usage is not None else None,
        "completion_tokens": usage.completion if usage is not None else None,
        "first_byte_ms": ttft_ms,
        "duration_ms": duration_ms,
        "text": answer.text,
        "problem": answer.problem,
    }


def _replayed(found: dict[str, Any]) -> None:
    before, now = found["before"], found["now"]
    rows = [{**row, "took": span(row["duration_ms"])} for row in (before, now)]
    table(rows, ("request", "model", "status", "prompt_tokens", "completion_tokens", "took"))
    print(f"{found['alike'] * 100:.0f} % of the words are the same\n")
    left, right = (row["text"] or row["problem"] for row in (before, now))
    print("\n".join(compare.columns(left, right, shutil.get_terminal_size((120, 40)).columns)))


def _list(limit: int, model: str | None, outcome: str | None, project: str | None) -> list[dict[str, Any]]:
    return selectors.recent(limit=max(1, limit), model=model, outcome=outcome, project=project)
