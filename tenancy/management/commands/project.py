"""`llmgw project`: projects of teams."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.errors import Invalid
from tenancy import selectors
from tenancy.actions import tree
from tenancy.management.allow import names, option


class Command(NounCommand):
    help = "Projects of a team: what keys belong to."
    examples = "  llmgw project create acme/research/papers\n  llmgw project list"

    def build(self) -> None:
        create = self.verb("create", _create, "a new project")
        create.add_argument("path", help="organisation/team/project")
        option(create)
        self.verb("list", _list, "every project", show=_table)


def _create(path: str, allow: str | None) -> dict[str, Any]:
    above, slash, name = path.rpartition("/")
    if not slash:
        raise Invalid("bad_path", f"a project is called organisation/team/project, and {path!r} names no team")
    above_row = selectors.team(above)
    return selectors.project_row(tree.create_project(team=above_row, name=name, allow=names(allow), actor=actor()))


def _list() -> list[dict[str, Any]]:
    return [selectors.project_row(row) for row in selectors.projects()]


def _table(rows: list[dict[str, Any]]) -> None:
    """`llmgw limits show` has the rest."""
    table([{**row, **row["limits"]} for row in rows], ["id", "path", "allow", "rpm", "tpm", "budget", "keys"])
