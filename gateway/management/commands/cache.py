"""`llmgw cache`: whether a project's answers are given again, what that saves, and what keeps engines from saving."""

from __future__ import annotations

import argparse
from typing import Any

from gateway import savings
from gateway.management import lint
from llmgw import money
from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.errors import Invalid
from llmgw.durations import seconds
from tenancy import selectors
from tenancy.actions import reuse
from tenancy.management import project as one


class Command(NounCommand):
    help = "Reusing answers: the same request of a project, answered from memory (docs/reuse.md)."
    examples = (
        "  llmgw cache set Acme/ml/train --ttl 1h\n"
        "  llmgw cache set Acme/ml/eval --ttl 24h --any\n"
        "  llmgw cache set Acme/support/desk --ttl 24h --similar 0.95\n"
        "  llmgw cache show Acme/ml/train\n"
        "  llmgw cache clear Acme/ml/train\n"
        "  llmgw cache lint requests.jsonl\n"
        "  llmgw cache lint --project Acme/ml/train --json\n"
        "  llmgw cache set Acme/ml/train --off"
    )

    found: dict[str, Any] = {}

    def build(self) -> None:
        show = self.verb("show", _show, "how it stands, and what was saved in 30 days", show=_stands)
        show.add_argument(
            "project", nargs="?", default="", help="organisation/team/project; without it, all that reuse"
        )
        change = self.verb("set", _set, "reuse a project's answers, or stop", show=_table)
        change.add_argument("project", help="organisation/team/project")
        how = change.add_mutually_exclusive_group(required=True)
        how.add_argument(
            "--ttl", type=_duration, metavar="TIME", help="how long an answer is given again: 90s, 1h, 24h"
        )
        how.add_argument("--off", action="store_true", help="ask anew each time")
        change.add_argument("--any", action="store_true", help="sampled answers too, which would differ")
        change.add_argument(
            "--similar", type=float, metavar="0.95", help="questions this alike too (cosine of their embeddings)"
        )
        clear = self.verb("clear", _clear, "forget the answers that were given so far")
        clear.add_argument("project", help="organisation/team/project")
        read = self.verb("lint", self._lint, "what keeps engines from reusing a prompt's beginning", show=lint.show)
        read.add_argument(
            "file", nargs="?", default="", help="a body (or {session, body}) a line; - for standard input"
        )
        read.add_argument("--project", default="", help="organisation/team/project: the requests that are kept of it")

    def _lint(self, file: str, project: str) -> dict[str, Any]:
        self.found = lint.run(file, project)
        return self.found

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit code 1 where something was found."""
        self.found = {}
        super().handle(*args, **options)
        if self.found.get("findings"):
            raise SystemExit(1)


def _show(project: str) -> list[dict[str, Any]]:
    rows = one.show(project, "reuse")
    for row in rows:
        found = selectors.project(row["project"])
        row["since"] = found.reuse_since
        row["saved"] = savings.by_model(found.public_id)
    return rows


def _clear(project: str) -> dict[str, Any]:
    found = reuse.forget(project=selectors.project(project), actor=actor())
    return {"project": found.path, "cleared": found.reuse_since}


def _set(project: str, ttl: float | None, off: bool, any: bool, similar: float | None) -> list[dict[str, Any]]:
    if off and (any or similar is not None):
        raise Invalid("bad_reuse", "--off stands alone")
    return one.change(project, "reuse", None if off else {"ttl_s": ttl, "any": any, "similar": similar})


def _duration(text: str) -> float:
    found = seconds(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a duration like 90s, 5m or 1h30m, and not {text!r}")
    return found


def _stands(rows: list[dict[str, Any]]) -> None:
    _table(rows)
    saved = [{"project": row["project"], **each} for row in rows for each in row["saved"]]
    if not saved:
        return
    for each in saved:
        each["saved"] = money.written(savings.money(each))
    print("\nin the last 30 days:")
    table(saved, ["project", "model", "requests", "hits", "reused_tokens", "prompt_tokens", "cached_tokens", "saved"])


def _table(rows: list[dict[str, Any]]) -> None:
    table(rows, ["project", "on", "ttl_s", "any", "similar", "in_force", "kept_from_it_by"])
