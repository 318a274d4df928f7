"""`llmgw ledger verify` finds what differs, and by how much; a wrong price is corrected by new entries."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from catalog.actions import models, prices
from catalog.core.starter import starter
from gateway import spending
from gateway.control import ledger, parts, verifying
from gateway.control.ingesting import keep
from gateway.control.redis import client
from gateway.core.ledger import keys
from gateway.models import Usage, UsageCorrection, UsageHour
from llmgw import metrics, series
from llmgw.price import Price
from tenancy.models import Organisation, Project, Team
from tests.gateway.usage_rows import row

pytestmark = pytest.mark.django_db(transaction=True)
PRICE = Price(prompt=1000, completion=3000, cached=100)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "_PAUSE_S", 0.01)
    for pattern in (f"{keys.ROOT}*", f"{metrics.PREFIX}*", verifying.MARK):
        for key in client().scan_iter(pattern):
            client().delete(key)


@pytest.fixture
def now() -> datetime:
    """The middle of an hour of the running month that has passed, so that no boundary is near."""
    moment = timezone.now()
    return moment.replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def project() -> Project:
    organisation = Organisation.objects.create(name="acme", limits={"budget": 10**12, "period": "month"})
    return Project.objects.create(team=Team.objects.create(organisation=organisation, name="t"), name="p")


@pytest.fixture
def priced() -> None:
    models.add(definition=starter("tiny"), actor="test")
    prices.enter(model="tiny", price=PRICE, since="2020-01-01", actor="test")


def used(now: datetime, project: Project, count: int = 20, price: Price = PRICE) -> list[Usage]:
    who = {
        "organisation": project.team.organisation.public_id,
        "team": project.team.public_id,
        "project": project.public_id,
    }
    rows = [
        row(
            now + timedelta(seconds=n), n, prompt_tokens=100 + n, cached_tokens=50, cost=price.of(100 + n, 5, 50), **who
        )
        for n in range(count)
    ]
    keep(rows)
    return rows


def verified(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = 0
    try:
        call_command("ledger", "verify", "--json")
    except SystemExit as e:
        code = int(str(e.code))
    return code, json.loads(capsys.readouterr().out)


def differing(found: dict[str, Any]) -> dict[str, int]:
    return {d["check"]: d["found"] - d["expected"] for d in found["differences"]}


@pytest.mark.usefixtures("priced")
def test_all_agrees(now: datetime, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    rows = used(now, project)
    ledger.seed(ledger.budgets(parts.tenancy()))
    for _ in range(2):
        code, found = verified(capsys)
        assert (code, found["differences"]) == (0, [])
        assert found["requests"] == len(rows)
    assert found["checks"]["prices"] == "1 models by their own prices"
    assert found["checks"]["ledger"] == "1 budgets, 0 that Redis does not know yet"
    assert found["checks"]["counters"].startswith("tokens since")
    call_command("ledger", "verify")
    assert "agrees" in capsys.readouterr().out


@pytest.mark.usefixtures("priced")
def test_each_difference_is_found(now: datetime, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    used(now, project)
    ledger.seed(budgets := ledger.budgets(parts.tenancy()))
    assert verified(capsys)[0] == 0
    UsageHour.objects.update(prompt_tokens=1)  # sums that are off
    client().hincrby(ledger._purse(budgets[0]), "s", 77)  # a ledger that counted once too often
    figures = metrics.Figures()
    figures.add(series.TOKENS, ("tiny", "completion"), 1000)  # an edge that counted what no row has
    client().set(f"{metrics.PREFIX}edge-1", metrics.encode(figures.state("edge", 0)))
    prices.enter(model="tiny", price=replace(PRICE, completion=3001), since="2020-01-01", actor="test")
    code, found = verified(capsys)
    assert code == 1
    told = differing(found)
    assert told["ledger"] == 77
    assert told["counters"] == 1000
    assert told["prices"] == -20 * 5
    assert told["sums"] < 0
    client().delete(f"{metrics.PREFIX}edge-1")


@pytest.mark.usefixtures("priced")
def test_a_row_that_is_gone_is_missed(now: datetime, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    rows = used(now, project)
    Usage.objects.filter(request_id=rows[0].request_id).delete()
    code, found = verified(capsys)
    assert code == 1
    assert {"requests": 1, "cost": rows[0].cost}.items() <= {
        d["what"].rpartition(" ")[2]: d["found"] - d["expected"] for d in found["differences"]
    }.items()


@pytest.mark.usefixtures("priced")
def test_a_wrong_price_is_corrected_by_new_entries(
    now: datetime, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = used(now, project, price=Price(prompt=10, completion=30, cached=1))
    keep([row(now, 500, cost=0, cache="hit"), row(now, 501, cost=0, tags={"replay_of": "req_1"})])
    keep([row(now, 502, outcome="refused", prompt_tokens=None, cost=None)])
    before = {r.request_id: r.cost for r in rows}
    ledger.seed(budgets := ledger.budgets(parts.tenancy()))
    right = sum(PRICE.of(100 + n, 5, 50) for n in range(20))
    today = timezone.localtime(now).date().isoformat()

    def reprice() -> dict[str, Any]:
        args = ("--model", "tiny", "--from", today, "--to", today, "--reason", "a typing error", "--json")
        call_command("ledger", "reprice", *args)
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    assert verified(capsys)[0] == 1
    done = reprice()
    assert done["requests"] == 20
    assert {r.request_id: r.cost for r in Usage.objects.filter(request_id__in=before)} == before, "rows stay"
    which = spending.last_days(2, {"project": project.public_id})
    assert spending.total(which)["cost"] == right
    assert ledger.spent(budgets).popitem()[1] == ledger.Money(right, 0)
    assert UsageCorrection.objects.get().reason == "a typing error"
    assert reprice()["corrections"] == 0, "a second time enters nothing"
    code, found = verified(capsys)
    assert (code, found["differences"]) == (0, [])
    call_command("usage", "rebuild")
    capsys.readouterr()
    assert spending.total(which)["cost"] == right


def test_what_cannot_be_corrected_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    models.add(definition=starter("tiny"), actor="test")
    args = ("--from", "2026-11-01", "--to", "2026-11-02", "--reason", "x")
    for model in ("tiny", "unknown"):
        with pytest.raises(SystemExit):
            call_command("ledger", "reprice", "--model", model, *args)
        assert "with a price of its own" in capsys.readouterr().err
    prices.enter(model="tiny", price=Price(image=5), actor="test")
    with pytest.raises(SystemExit):
        call_command("ledger", "reprice", "--model", "tiny", *args)
    assert "per picture" in capsys.readouterr().err
