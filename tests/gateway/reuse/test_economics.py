"""What reuse saved, from the request to the books, the sums and the command; and forgetting what was kept."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from gateway import savings
from gateway.control import ingesting, parts, rollups
from gateway.core import saving, snapshot
from gateway.core.usage import Usage as Counts
from gateway.models import Usage, UsageHour
from llmgw.price import Dated, Price
from tenancy.actions import limits
from tenancy.models import Organisation, Project, Team
from tests.gateway.edges import MODEL, EdgeProcess, catalog
from tests.gateway.reuse.worlds import ask, said, serve, zero
from tests.gateway.upstreams import Call, answer, engine

PRICE = Price(prompt=10, completion=20, cached=1)
counts = st.integers(0, 10**6)


@given(counts, counts, counts, st.sampled_from([None, Price(), Price(7, 11), PRICE]))
def test_what_was_saved_and_what_was_paid_are_the_whole_price(
    prompt: int, completion: int, cached: int, price: Price | None
) -> None:
    counted = Counts(prompt, completion, cached)
    again, before = saving.answer(counted, price), saving.prefix(counted, price)
    assert (again.tokens, before.tokens) == (prompt + completion, min(cached, prompt))
    if price is None:
        assert (again.cost, before.cost) == (None, None)
    else:
        assert again.cost == price.of(prompt, completion, cached)
        assert before.cost == price.of(prompt, completion) - again.cost


@pytest.fixture
def project() -> Project:
    team = Team.objects.create(name="ml", organisation=Organisation.objects.create(name="acme"))
    return Project.objects.create(name="train", team=team)


async def cached(call: Call) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 8}}
    await call.whole(answer(usage={"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13, **details}))


@pytest.mark.django_db
def test_from_the_request_to_the_sums(own_edge: EdgeProcess) -> None:
    own_edge.start()

    async def asked() -> list[httpx.Response]:
        async with engine(cached) as up:
            serve(own_edge, up.port)
            entry = replace(catalog().models[MODEL], prices=(Dated(PRICE),))
            own_edge.publish(catalog=snapshot.Catalog(models={MODEL: entry}))
            return [await asyncio.to_thread(ask, own_edge, zero()) for _ in range(4)]

    first, *again = asyncio.run(asked())
    assert [said(x) for x in (first, *again)] == ["miss", "hit", "hit", "hit"]
    paid, spared = 3 * 10 + 8 * 1 + 2 * 20, 8 * 9
    row = own_edge.settlement(first.headers["x-request-id"])
    assert (row.cost, row.saved, row.saved_tokens) == (paid, spared, 8)
    row = own_edge.settlement(again[0].headers["x-request-id"])
    assert (row.cost or 0, row.saved, row.saved_tokens) == (0, paid, 13)
    for request in again:
        own_edge.settlement(request.headers["x-request-id"])
    ingesting.ingest(own_edge.home / "spool")
    assert Usage.objects.get(cache="miss").saved == spared
    [found] = savings.by_model("p1")
    wanted = {"requests": 4, "hits": 3, "reused_tokens": 39, "saved_answers": 3 * paid, "saved_prefixes": spared}
    assert wanted.items() <= found.items()
    [whose] = savings.by_project()
    assert (whose["project"], savings.money(whose)) == ("p1", 3 * paid + spared)
    days = savings.by_day(7)
    assert [day["hits"] for day in days] == [0] * 6 + [3]
    assert savings.total(days)["cached_tokens"] == 8
    grain = rollups.grain_s()
    [hour] = UsageHour.objects.all()
    made = rollups.from_rows(hour.at, hour.at + timedelta(seconds=grain), grain)
    assert made[0].figures == tuple(getattr(hour, name) for name in rollups.SUMS), "the store sums as we do"


@pytest.mark.django_db
def test_forgetting(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    limits.change(level=project, terms={"reuse": {"ttl_s": 60}}, actor="t")
    assert parts.tenancy().projects[project.public_id].reuse == snapshot.Reuse(60.0)
    began = timezone.now().timestamp()
    call_command("cache", "clear", project.path)
    limits.change(level=project, terms={"reuse": {"ttl_s": 90}}, actor="t")
    found = parts.tenancy().projects[project.public_id].reuse
    assert found is not None
    assert (found.ttl_s, found.since >= began) == (90.0, True)
    UsageHour.objects.create(
        at=timezone.now(), project=project.public_id, model="m", requests=2, hits=1, saved_answers=5
    )
    capsys.readouterr()
    call_command("cache", "show", project.path, "--json")
    [shown] = json.loads(capsys.readouterr().out)
    told: dict[str, Any] = shown["saved"][0]
    assert (shown["on"], told["hits"], told["saved_answers"]) == (True, 1, 5)
    call_command("cache", "show", project.path)
    assert "in the last 30 days" in capsys.readouterr().out
