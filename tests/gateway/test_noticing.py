"""What of the traffic people are told: budgets in the real ledger, rows and keys as edges tell them."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.selectors import OutsideKey
from gateway import noticing
from gateway.control import ledger, parts
from gateway.control.redis import client
from gateway.core.ledger import keys as names
from gateway.core.ledger.refusals import Limit, refusal, spender
from gateway.core.ledger.worst import Worst
from gateway.core.snapshot import LevelLimits
from gateway.models import Usage
from llmgw.cluster.actions import notices
from llmgw.cluster.core import notices as core
from llmgw.cluster.models import Notice
from tenancy.core.limits import Limits
from tenancy.models import Organisation, Project, Team

pytestmark = pytest.mark.django_db(transaction=True)
NANO = 10**9


@pytest.fixture(autouse=True)
def _empty() -> None:
    noticing._refused.clear()
    for key in client().scan_iter(f"{names.ROOT}*"):
        client().delete(key)


@pytest.fixture
def project() -> Project:
    team = Team.objects.create(name="ml", organisation=Organisation.objects.create(name="Acme"))
    return Project.objects.create(name="train", team=team, limits={"budget": 10 * NANO, "period": "day"})


def level_of(project: Project) -> LevelLimits:
    (one,) = [b for b in ledger.budgets(parts.tenancy(time.time())) if b.id == project.public_id]
    return one


def spend(project: Project, units: float) -> None:
    one = level_of(project)
    ledger.seed([one])
    client().hincrby(ledger._purse(one), "s", round(units * NANO))


def look() -> list[str]:
    notices.stand({core.BUDGET_SPENT: noticing._budgets()})
    return list(Notice.objects.filter(over_at=None).values_list("message", flat=True))


def refused_row(project: Project, held: int = 0, wait_ms: int = 0) -> Usage:
    """As the edge refuses it."""
    said = refusal(level_of(project), Limit.BUDGET, wait_ms, 9 * NANO + held, held, Worst(100, 2 * NANO, 0, True))
    return Usage(request_id="r", at=timezone.now(), project=project.public_id, outcome=Usage.Outcome.REFUSED,
                 code=said.code, reason=str(said))  # fmt: skip


def test_a_budget_that_is_reached_is_told_until_it_gets_a_larger_one(project: Project) -> None:
    spend(project, 9.9)
    assert look() == []
    spend(project, 0.1)
    (message,) = look()
    assert message.startswith("the project Acme/ml/train has spent its budget of 10.00: until 20")
    assert Notice.objects.get().command == "llmgw limits show Acme/ml/train"
    assert look() == [message]
    Project.objects.update(limits={"budget": 20 * NANO, "period": "day"})
    assert look() == []
    assert Notice.objects.count() == 1  # nobody need be told of the end


def test_a_thousand_refusals_are_one_notice_and_it_stays_while_little_is_left(project: Project) -> None:
    spend(project, 9)
    rows = [refused_row(project) for _ in range(1000)]
    noticing.refused(rows)
    noticing._refused.clear()
    noticing.refused(rows)
    assert Notice.objects.count() == 1
    assert len(look()) == 1
    Notice.objects.update(detail={**Notice.objects.get().detail, "terms": "2001-01-01 10000000000"})
    assert look() == []  # another period


def test_one_that_only_waits_for_others_is_not_spent(project: Project) -> None:
    spend(project, 1)
    noticing.refused([refused_row(project, held=8 * NANO, wait_ms=900)])
    assert Notice.objects.count() == 0


@pytest.mark.parametrize("level", ["key", "project", "team", "organisation"])
def test_whose_budget_a_refusal_names(level: str) -> None:
    one = LevelLimits(level, "i", Limits(budget=NANO), "2026-11", time.time() + 60, 0.0)
    spent = refusal(one, Limit.BUDGET, 0, NANO, 0, Worst(1, 1, 0, True))
    waits = refusal(one, Limit.BUDGET, 500, NANO, NANO // 2, Worst(1, 1, 0, True))
    other = refusal(LevelLimits(level, "i", Limits(rpm=1)), Limit.REQUESTS, 500, 1, 0, Worst(1, 1, 0, True))
    assert [spender(e.code, str(e)) for e in (spent, waits, other)] == [level, None, None]


def test_a_providers_key_that_is_refused_and_taken_again() -> None:
    bad = OutsideKey("external:gpt#1", "external_key_refused", "key 1 was refused by its provider (401)")
    notices.stand({core.KEY_REFUSED: noticing.keys({"gpt": [bad, OutsideKey("external:gpt#2")]})})
    row = Notice.objects.get()
    assert (row.subject, row.detail) == ("external:gpt#1", {"model": "gpt"})
    assert row.message == ("the provider of the model gpt refuses its key: key 1 was refused by its provider (401)")
    Notice.objects.update(told_at=timezone.now() - timedelta(seconds=1))
    resting = OutsideKey("external:gpt#1", "external_key_resting")
    notices.stand({core.KEY_REFUSED: noticing.keys({"gpt": [resting]})})
    assert Notice.objects.count() == 1
    notices.stand({core.KEY_REFUSED: noticing.keys({"gpt": [OutsideKey("external:gpt#1")]})})
    assert Notice.objects.filter(kind="external_key_accepted").exists()
