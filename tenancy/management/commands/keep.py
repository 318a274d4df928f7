"""`llmgw keep`: whether a project's requests are kept, to be looked at and asked again."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.commands import NounCommand, table
from llmgw.cluster.errors import Invalid
from tenancy.management import project as one


class Command(NounCommand):
    help = "Keeping requests: what was asked and answered, for some hours."
    examples = (
        "  llmgw keep set Acme/ml/train --hours 72\n"
        "  llmgw keep set Acme/ml/train --hours 168 --sample 0.05\n"
        "  llmgw keep show\n"
        "  llmgw keep set Acme/ml/train --off"
    )

    def build(self) -> None:
        show = self.verb("show", _show, "how it stands", show=_table)
        show.add_argument("project", nargs="?", default="", help="organisation/team/project; without it, all that keep")
        change = self.verb("set", _set, "keep a project's requests, or stop", show=_table)
        change.add_argument("project", help="organisation/team/project")
        how = change.add_mutually_exclusive_group(required=True)
        how.add_argument("--hours", type=float, help="how long each is kept")
        how.add_argument("--off", action="store_true", help="keep none, and remove those that were kept")
        change.add_argument("--sample", type=float, metavar="0.05", help="only this share of them; 1 without it")


def _show(project: str) -> list[dict[str, Any]]:
    return one.show(project, "keep")


def _set(project: str, hours: float | None, off: bool, sample: float | None) -> list[dict[str, Any]]:
    if off and sample is not None:
        raise Invalid("bad_keep", "--off stands alone")
    return one.change(project, "keep", None if off else {"hours": hours, "sample": 1.0 if sample is None else sample})


def _table(rows: list[dict[str, Any]]) -> None:
    table(rows, ["project", "on", "hours", "sample", "in_force", "kept_from_it_by"])
