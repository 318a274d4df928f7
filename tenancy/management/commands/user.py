"""`llmgw user`: people's accounts."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from llmgw.cluster.commands import NounCommand, actor, table
from tenancy import selectors
from tenancy.actions import memberships, people
from tenancy.models import Membership


class Command(NounCommand):
    help = "People: their accounts, roles and memberships."
    examples = (
        "  llmgw user create ada@example.com --member acme/research\n"
        "  llmgw user create root@example.com --administrator\n"
        "  llmgw user list\n"
        "  llmgw user reset-password ada@example.com\n"
        "  llmgw user join ada@example.com acme/research --role owner\n"
        "  llmgw user leave ada@example.com acme/research\n"
        "  llmgw user role ada@example.com administrator\n"
        "  llmgw user deactivate ada@example.com"
    )

    def build(self) -> None:
        create = self.verb("create", _create, "a new account; its password is printed once", show=_password)
        create.add_argument("email")
        create.add_argument("--name", default="", help="how the person is called")
        create.add_argument("--administrator", action="store_true", help="may change everything in the cluster")
        create.add_argument(
            "--member", metavar="PATH", help="belongs to this organisation, organisation/team or …/project"
        )
        create.add_argument(
            "--role", choices=Membership.Role.values, default=Membership.Role.MEMBER.value, help="there"
        )
        self.verb("list", _list, "every account", show=_table)
        self._of_person("reset-password", _reset, "a new password, printed once; every session ends", _password)
        self._of_person(
            "deactivate", _deactivate, "no sign-in any more; sessions end and keys are revoked", _table_of_one
        )
        self._of_person("activate", _activate, "may sign in again; keys stay revoked", _table_of_one)
        role = self._of_person("role", _role, "make an administrator, or take it back", _table_of_one)
        role.add_argument("role", choices=("administrator", "person"))
        join = self._of_person("join", _join, "belong to a level of the tree, and to all below it", _table_of_one)
        join.add_argument("level", help="organisation, organisation/team or organisation/team/project")
        join.add_argument("--role", choices=Membership.Role.values, default=Membership.Role.MEMBER.value)
        leave = self._of_person(
            "leave", _leave, "belong to a level no more; keys out of reach are revoked", _table_of_one
        )
        leave.add_argument("level", help="organisation, organisation/team or organisation/team/project")

    def _of_person(self, name: str, run: Any, help: str, show: Any) -> Any:
        verb = self.verb(name, run, help, show=show)
        verb.add_argument("email", help="the account, by e-mail address or id")
        return verb


def _create(email: str, name: str, administrator: bool, member: str | None, role: str) -> dict[str, Any]:
    level = selectors.level(member) if member else None
    with transaction.atomic():
        made = people.create(email=email, name=name, administrator=administrator, actor=actor())
        if level is not None:
            memberships.grant(person=made.person, level=level, role=role, actor=actor())
    return {**selectors.person_row(made.person), "password": made.password}


def _list() -> list[dict[str, Any]]:
    return [selectors.person_row(row) for row in selectors.people()]


def _reset(email: str) -> dict[str, Any]:
    made = people.reset_password(person=selectors.person(email), actor=actor())
    return {**selectors.person_row(made.person), "password": made.password}


def _deactivate(email: str) -> dict[str, Any]:
    return selectors.person_row(people.deactivate(person=selectors.person(email), actor=actor()))


def _activate(email: str) -> dict[str, Any]:
    return selectors.person_row(people.activate(person=selectors.person(email), actor=actor()))


def _role(email: str, role: str) -> dict[str, Any]:
    person = selectors.person(email)
    changed = people.set_administrator(person=person, administrator=role == "administrator", actor=actor())
    return selectors.person_row(changed)


def _join(email: str, level: str, role: str) -> dict[str, Any]:
    person = selectors.person(email)
    memberships.grant(person=person, level=selectors.level(level), role=role, actor=actor())
    return selectors.person_row(person)


def _leave(email: str, level: str) -> dict[str, Any]:
    person = selectors.person(email)
    memberships.withdraw(person=person, level=selectors.level(level), actor=actor())
    return selectors.person_row(person)


def _password(row: dict[str, Any]) -> None:
    print(f"{row['email']}\n{row['password']}\n\nIt is not shown again, and must be changed at the first sign-in.")


def _table(rows: list[dict[str, Any]]) -> None:
    shown = [{**r, "memberships": [f"{m['level']} ({m['role']})" for m in r["memberships"]]} for r in rows]
    table(shown, ["id", "email", "name", "administrator", "active", "memberships", "keys", "last_login"])


def _table_of_one(row: dict[str, Any]) -> None:
    _table([row])
