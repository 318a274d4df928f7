"""`llmgw key`: API keys."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.commands import NounCommand, actor, table
from tenancy import selectors
from tenancy.actions import keys
from tenancy.core.terms import BANDS
from tenancy.management import figures
from tenancy.management.allow import names, option
from tenancy.models import Key


class Command(NounCommand):
    help = "API keys: shown once when they are made, kept only as a hash."
    examples = (
        "  llmgw key create laptop --project acme/research/papers\n"
        "  llmgw key create laptop --person ada@example.com --days 30 --allow tiny\n"
        "  llmgw key create nightly --rpm 600 --budget 20 --period day --band batch\n"
        "  llmgw key create robot --scope admin --person ada@example.com\n"
        "  llmgw key list --all\n"
        "  llmgw key revoke llmgw_Ab3dEf"
    )

    def build(self) -> None:
        create = self.verb("create", _create, "a new key; it is printed once", show=_show)
        create.add_argument("name", help="what it is for")
        create.add_argument(
            "--project", default="", metavar="PATH", help="organisation/team/project; the only one, if there is one"
        )
        create.add_argument("--person", metavar="EMAIL", help="whose it is")
        create.add_argument("--scope", choices=Key.Scope.values, default=Key.Scope.INFERENCE.value)
        create.add_argument("--days", type=int, help="how long it lives; without it, as long as the settings allow")
        option(create)
        figures.options(create)
        create.add_argument(
            "--band", choices=BANDS, default=Key.Band.NORMAL.value, help="who goes first when requests wait"
        )
        found = self.verb("list", _list, "keys that are live", show=_table)
        found.add_argument("--all", action="store_true", help="revoked and expired ones too")
        found.add_argument("--project", metavar="PATH")
        found.add_argument("--person", metavar="EMAIL")
        revoke = self.verb("revoke", _revoke, "refuse a key from now on, everywhere within two seconds")
        revoke.add_argument("key", help="its id, or the first characters as `key list` shows them")


def _create(
    name: str, project: str, person: str | None, scope: str, days: int | None, allow: str | None, **limits: Any
) -> dict[str, Any]:
    band = limits.pop("band")
    made = keys.create(
        project=selectors.project(project),
        name=name,
        person=selectors.person(person) if person else None,
        scope=scope,
        days=days,
        allow=names(allow),
        limits=figures.said(limits),
        band=band,
        actor=actor(),
    )
    return {**selectors.key_row(made.key), "key": made.secret}


def _list(all: bool, project: str | None, person: str | None) -> list[dict[str, Any]]:
    found = selectors.keys(living=not all)
    if project:
        found = found.filter(project=selectors.project(project))
    if person:
        found = found.filter(person=selectors.person(person))
    return [selectors.key_row(row) for row in found]


def _revoke(key: str) -> dict[str, Any]:
    return selectors.key_row(keys.revoke(key=selectors.key(key), actor=actor()))


def _show(row: dict[str, Any]) -> None:
    until = f"until {row['expires_at']:%Y-%m-%d}" if row["expires_at"] else "until it is revoked"
    print(f"{row['key']}\n\n{row['name']}, for {row['project']}, {until}. It is not shown again.")


def _table(rows: list[dict[str, Any]]) -> None:
    table(rows, ["id", "prefix", "name", "state", "project", "person", "scope", "expires_at", "last_used_at"])
