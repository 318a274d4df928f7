"""`llmgw team`: teams of organisations."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.errors import Invalid
from tenancy import selectors
from tenancy.actions import tree
from tenancy.management.allow import names, option


class Command(NounCommand):
    help = "Teams of an organisation."
    examples = "  llmgw team create acme/research\n  llmgw team list"

    def build(self) -> None:
        create = self.verb("create", _create, "a new team")
        create.add_argument("path", help="organisation/team")
        option(create)
        self.verb("list", _list, "every team", show=_table)


def _create(path: str, allow: str | None) -> dict[str, Any]:
    above, slash, name = path.rpartition("/")
    if not slash:
        raise Invalid("bad_path", f"a team is called organisation/team, and {path!r} names no organisation")
    above_row = selectors.organisation(above)
    return selectors.team_row(tree.create_team(organisation=above_row, name=name, allow=names(allow), actor=actor()))


def _list() -> list[dict[str, Any]]:
    return [selectors.team_row(row) for row in selectors.teams()]


def _table(rows: list[dict[str, Any]]) -> None:
    """`llmgw limits show` has the rest."""
    table([{**row, **row["limits"]} for row in rows], ["id", "path", "allow", "rpm", "tpm", "budget", "projects"])
