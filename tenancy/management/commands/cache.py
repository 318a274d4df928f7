"""`llmgw cache`: whether a project's answers are given again."""

from __future__ import annotations

import argparse
from typing import Any

from llmgw.cluster.commands import NounCommand, table
from llmgw.cluster.errors import Invalid
from llmgw.durations import seconds
from tenancy.management import project as one


class Command(NounCommand):
    help = "Reusing answers: the same request of a project, answered from memory (docs/reuse.md)."
    examples = (
        "  llmgw cache set Acme/ml/train --ttl 1h\n"
        "  llmgw cache set Acme/ml/eval --ttl 24h --any\n"
        "  llmgw cache set Acme/support/desk --ttl 24h --similar 0.95\n"
        "  llmgw cache show Acme/ml/train\n"
        "  llmgw cache set Acme/ml/train --off"
    )

    def build(self) -> None:
        show = self.verb("show", _show, "how it stands", show=_table)
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


def _show(project: str) -> list[dict[str, Any]]:
    return one.show(project, "reuse")


def _set(project: str, ttl: float | None, off: bool, any: bool, similar: float | None) -> list[dict[str, Any]]:
    if off and (any or similar is not None):
        raise Invalid("bad_reuse", "--off stands alone")
    return one.change(project, "reuse", None if off else {"ttl_s": ttl, "any": any, "similar": similar})


def _duration(text: str) -> float:
    found = seconds(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a duration like 90s, 5m or 1h30m, and not {text!r}")
    return found


def _table(rows: list[dict[str, Any]]) -> None:
    table(rows, ["project", "on", "ttl_s", "any", "similar", "in_force", "kept_from_it_by"])
