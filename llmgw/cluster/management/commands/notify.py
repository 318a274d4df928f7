"""`llmgw notify`: what people were told of without having asked, and whether the webhooks answer."""

from __future__ import annotations

import sys
from typing import Any

from llmgw.cluster import notifying, selectors
from llmgw.cluster.actions import notices
from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.core.notices import KINDS
from llmgw.cluster.errors import Conflict, Invalid


class Command(NounCommand):
    help = "Webhooks, and what they were told: models parked, nodes lost, budgets spent, providers' keys refused."
    examples = (
        "  llmgw notify list\n"
        "  llmgw notify list --standing --watch\n"
        "  llmgw notify list --kind node_lost --json\n"
        "  llmgw notify add https://ops.example.com/llmgw\n"
        "  llmgw notify add - < slack-address   # so that no list of processes shows it\n"
        "  llmgw notify test"
    )

    def build(self) -> None:
        listed = self.verb("list", _list, "what there was to tell, newest first", show=_table, watch=True)
        listed.add_argument("--kind", default=None, metavar="KIND", help=", ".join(KINDS))
        listed.add_argument("--standing", action="store_true", help="only what is so still")
        listed.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many (50)")
        add = self.verb("add", _add, "one webhook more, and a test event to it", show=_added)
        add.add_argument(
            "webhook", help="an address, with slack: or json: in front where it does not show which; -: from stdin"
        )
        self.verb("test", _test, "a test event to every webhook, and how each answered", show=_answers)


def _list(kind: str | None, standing: bool, limit: int) -> list[dict[str, Any]]:
    if kind is not None and kind not in KINDS:
        raise Invalid("no_such_kind", f"there is no notice {kind[:60]!r}, only {', '.join(KINDS)}")
    return selectors.notices(limit=limit, kind=kind, standing=standing)


def _table(rows: list[dict[str, Any]]) -> None:
    table(
        [
            {
                "at": row["at"],
                "kind": row["kind"],
                "subject": row["subject"],
                "over": row["over_at"],
                "told": told(row),
                "message": row["message"],
            }
            for row in rows
        ]
    )


def told(row: dict[str, Any]) -> str:
    """In a word or two what became of a notice."""
    if row["told_at"] is None:
        return "over before" if row["due_at"] is None else "waits"
    each = [
        f"{d['webhook']} {d['state']}" + (f" ({d['answer']})" if d["state"] != "sent" and d["answer"] else "")
        for d in row["deliveries"]
    ]
    return ", ".join(each) or "nobody asked"


def _add(webhook: str) -> dict[str, Any]:
    typed = sys.stdin.readline().strip() if webhook == "-" else webhook
    row = notices.add_webhook(typed=typed, actor=actor())
    (tested,) = notifying.try_out(only=row.id)
    return {
        "webhook": row.to,
        "format": row.form,
        "added": row.added,
        "good": tested["good"],
        "answer": tested["answer"],
    }


def _added(row: dict[str, Any]) -> None:
    print(f"{row['webhook']} ({row['format']}) {'was added' if row['added'] else 'was there already'}")
    print(f"a test event was answered: {row['answer']}")
    if not row["good"]:
        raise SystemExit(1)


def _test() -> list[dict[str, Any]]:
    rows = notifying.try_out()
    if not rows:
        raise Conflict("no_webhook", "there is no webhook to test", "llmgw notify add https://ops.example.com/llmgw")
    return rows


def _answers(rows: list[dict[str, Any]]) -> None:
    table(rows)
    if not all(row["good"] for row in rows):
        raise SystemExit(1)
