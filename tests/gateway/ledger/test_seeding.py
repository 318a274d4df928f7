"""Budgets that a Redis has not heard of: from the rows, once, with what edges have settled meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.control import ingesting, ledger, publishing
from gateway.control.redis import client
from gateway.core import snapshot
from gateway.core.ledger import account, keys
from gateway.core.ledger.account import Account, Record
from gateway.core.snapshot import LevelLimits
from gateway.models import Usage
from llmgw.cluster.changes import announce
from tenancy.core.limits import Limits
from tenancy.models import Organisation, Project, Team
from tests.gateway.ledger.script import Script

pytestmark = pytest.mark.django_db(transaction=True)
BEGAN = datetime(2026, 11, 29, 18, 30, tzinfo=UTC)
"""In the middle of an hour, as a day begins by India's clock."""


@pytest.fixture(autouse=True)
def _empty() -> None:
    for pattern in (f"{keys.ROOT}*", f"{snapshot.PREFIX}*"):
        for key in client().scan_iter(pattern):
            client().delete(key)


def level(id: str = "p1", budget: int = 1000) -> LevelLimits:
    return LevelLimits("project", id, Limits(budget=budget), "2026-11-30", BEGAN.timestamp() + 86400, BEGAN.timestamp())


def row(id: str, minutes: float, cost: int | None, project: str = "p1") -> Usage:
    at = BEGAN + timedelta(minutes=minutes)
    return Usage(request_id=id, at=at, endpoint="chat", model="m", asked="m", stream=False, project=project,
                 outcome="ok", cost=cost)  # fmt: skip


def insert(*rows: Usage) -> None:
    ingesting.keep(list(rows))


def test_from_the_rows_of_the_period_alone() -> None:
    insert(row("a", -1, 1), row("b", 0, 10), row("c", 29, 100), row("d", 31, 1000), row("e", 300, None))
    insert(row("f", 31, 5, project="p2"))
    assert ledger.from_rows(level()) == 1110
    assert ledger.spent([level()]) == {("project", "p1"): None}
    assert ledger.seed([level()]) == 1
    assert ledger.seed([level()]) == 0
    assert ledger.spent([level()]) == {("project", "p1"): ledger.Money(1110, 0)}
    assert client().ttl(ledger._purse(level())) > 0


def test_what_edges_settled_meanwhile_counts_once() -> None:
    """Of what was settled on the emptied Redis some is in rows already, and some is not."""
    insert(row("old", 5, 100))
    script = Script(client())
    purse = Account("project:p1", budget=1000, period="2026-11-30")
    record = Record(1, 50, (purse,))
    now = int(BEGAN.timestamp() * 1000)
    for id in ("shipped+", "waiting", "running"):
        script.force(id, record, now)
    for id, cost in (("shipped+", 30), ("waiting", 7)):
        script.settle(id, record, 1, cost, 5, now)
    insert(row("shipped", 6, 30))
    assert ledger.seed([level()]) == 1
    assert ledger.spent([level()]) == {("project", "p1"): ledger.Money(137, 50)}
    insert(row("waiting", 6, 7))
    assert ledger.from_rows(level()) == 137


def test_a_new_budget_is_seeded_before_it_is_published(tmp_path: Path) -> None:
    organisation = Organisation.objects.create(name="acme", limits={"budget": 500, "period": "day"})
    project = Project.objects.create(team=Team.objects.create(organisation=organisation, name="t"), name="p")
    assert publishing.publish(["tenancy"]) == ["tenancy"]
    part = snapshot.decode("tenancy", client().get(snapshot.PREFIX + "tenancy") or b"")
    assert isinstance(part, snapshot.Tenancy)
    found = ledger.budgets(part)
    assert [one.id for one in found] == [organisation.public_id]
    assert ledger.spent(found) == {("organisation", organisation.public_id): ledger.Money(0, 0)}

    ledger.watch(tmp_path)
    assert client().get(ledger.SEEDED) == client().hget(snapshot.VERSIONS, "tenancy")
    client().delete(ledger.SEEDED, ledger._purse(found[0]))  # as an emptied Redis
    ledger.watch(tmp_path)
    assert None not in ledger.spent(found).values()
    assert project.public_id in part.projects
    announce("tenancy")


def test_the_next_period_is_seeded_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    organisation = Organisation.objects.create(name="acme", limits={"budget": 500, "period": "day"})
    Project.objects.create(team=Team.objects.create(organisation=organisation, name="t"), name="p")
    publishing.publish(["tenancy"])
    midnight = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    monkeypatch.setattr("gateway.control.ledger.time.time", lambda: midnight - 60)
    ledger.watch(tmp_path)
    name = account.name("organisation", organisation.public_id)
    assert client().hget(keys.purse(name, "2026-12-01"), "k") is not None
