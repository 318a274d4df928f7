"""`llmgw org`: organisations."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.commands import NounCommand, actor, table
from tenancy import selectors
from tenancy.actions import tree
from tenancy.management.allow import names, option


class Command(NounCommand):
    help = "Organisations: the top of the tree organisation / team / project."
    examples = "  llmgw org create acme\n  llmgw org create acme --allow tiny,qwen2.5-0.5b\n  llmgw org list --json"

    def build(self) -> None:
        create = self.verb("create", _create, "a new organisation")
        create.add_argument("name")
        option(create)
        self.verb("list", _list, "every organisation", show=_table)


def _create(name: str, allow: str | None) -> dict[str, Any]:
    return selectors.organisation_row(tree.create_organisation(name=name, allow=names(allow), actor=actor()))


def _list() -> list[dict[str, Any]]:
    return [selectors.organisation_row(row) for row in selectors.organisations()]


def _table(rows: list[dict[str, Any]]) -> None:
    """`llmgw limits show` has the rest."""
    table([{**row, **row["limits"]} for row in rows], ["id", "path", "allow", "rpm", "tpm", "budget", "teams"])
