"""Pages of limits: what is left, what holds, and who may change it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from catalog.actions import prices
from gateway.control import left, parts
from gateway.control.redis import client as redis_client
from gateway.core.ledger import account, keys
from gateway.core.snapshot import LevelLimits
from llmgw.price import Price
from tenancy.actions import keys as key_actions
from tenancy.actions import limits, memberships
from tests.portal import seed


@pytest.fixture(autouse=True)
def _empty(redis_url: str) -> None:
    for key in redis_client().scan_iter(f"{keys.ROOT}*"):
        redis_client().delete(key)


def words(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content.decode()[:2000]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def use(level: LevelLimits, requests: int, tokens: int, concurrent: int, money: int) -> None:
    """As the ledger's script leaves it, some of it older than a minute."""
    redis = redis_client()
    seconds: Any = redis.time()
    now = int(seconds[0]) * 10
    name = account.name(level.level, level.id)
    fields = {"b": now, "br": 1, "bt": 0, "o": now - 900, "r": requests + 3, "t": tokens, "c": concurrent, "h": 0}
    redis.hset(keys.account(name), mapping=fields)
    redis.rpush(keys.window(name), f"{now - 900}:3:0", f"{now - 100}:{requests - 1}:{tokens}")
    redis.hset(keys.purse(name, level.period), mapping={"s": money, "h": 0, "k": 1})


def test_what_is_left_is_what_the_ledger_says(seeded: seed.Seeded) -> None:
    limits.change(level=seeded.project, limits={"budget": "10", "rpm": 9}, actor="t")
    level = parts.bounds([seeded.project])[seeded.project.public_id]
    assert left.used([level])["project", level.id] == left.Used(0, 0, 0, None), "nobody has asked anything yet"
    use(level, requests=4, tokens=120, concurrent=2, money=25 * 10**8)
    assert left.used([level])["project", level.id] == left.Used(4, 120, 2, 25 * 10**8)


def test_the_account_page_shows_what_is_left(member: Client, seeded: seed.Seeded) -> None:
    limits.change(level=seeded.project, limits={"budget": "10", "period": "day", "concurrent": 4}, actor="t")
    use(parts.bounds([seeded.project])[seeded.project.public_id], 1, 0, 3, 25 * 10**8)
    page = words(member, "/account")
    assert "evaluation run – / 60" not in page
    assert re.search(r"evaluation run 0 / 60 0 / 200,000", page), "the cluster's defaults, nothing used"
    assert re.search(r"İstanbul Lab/research/assistants – – 3 / 4 2\.50 / 10\.00", page)
    assert "Chat, without a key 0 / 60" in page


def test_without_the_ledger_limits_are_shown_and_use_is_unknown(
    member: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(levels: Any) -> Any:
        raise OSError("away")

    monkeypatch.setattr(left, "used", away)
    assert "evaluation run – / 60" in words(member, "/account")


def test_an_administrator_changes_a_project(admin: Client, seeded: seed.Seeded) -> None:
    address = f"/admin/tenants/{seeded.project.public_id}"
    body = {
        "rpm": "9", "budget": "12.50", "period": "week", "no_store": "on", "allow": "tiny, idle-model", "weight": "2",
        "when_spent": "idle-model", "time_zone": "Europe/Istanbul", "reuse_ttl": "1h", "keep_hours": "72",
        "keep_sample": "0.5",
    }  # fmt: skip
    answer = admin.post(address, body)
    assert answer.status_code == 302, answer.content.decode()
    seeded.project.refresh_from_db()
    project = seeded.project
    assert project.limits == {"rpm": 9, "budget": 12_500_000_000, "period": "week"}
    assert (project.no_store, project.allow, project.weight) == (True, ["tiny", "idle-model"], 2.0)
    assert project.reuse == {"ttl_s": 3600.0, "any": False, "similar": None}
    assert project.keep == {"hours": 72.0, "sample": 0.5}
    page = words(admin, address)
    assert "0.00 / 12.50" in page or "– / 12.50" in page
    assert "tiny, idle-model" in page
    bad = admin.post(address, {**body, "budget": "NaN", "time_zone": "Mars/Olympus"}).content.decode()
    assert "an amount is written like 250 or 12.50" in bad
    assert "a time zone is called like Europe/Istanbul" in bad
    assert admin.post(address, {"period": "month", "weight": "1", "allow": "-"}).status_code == 302
    seeded.project.refresh_from_db()
    assert (seeded.project.limits, seeded.project.allow, seeded.project.keep) == ({}, [], None)


def test_limits_are_set_from_above(member: Client, seeded: seed.Seeded) -> None:
    """A member sees what binds him; an owner of the project sets its keys' limits, and not the project's."""
    address = f"/account/levels/{seeded.project.public_id}"
    assert "Nobody lifts limits of his own" in words(member, address)
    assert member.post(address, {"rpm": "1000000"}).status_code == 403
    memberships.grant(person=seeded.member, level=seeded.project, role="owner", actor="t")
    assert "Requests are kept for" in words(member, address)
    assert member.post(address, {"rpm": "1000000", "reuse_ttl": "1h"}).status_code == 302
    seeded.project.refresh_from_db()
    assert "rpm" not in seeded.project.limits, "a field that is not his is passed over"
    assert seeded.project.reuse["ttl_s"] == 3600.0
    key = f"/account/keys/{seeded.key.public_id}"
    assert member.post(key, {"rpm": "5", "period": "month", "band": "batch"}).status_code == 302
    seeded.key.refresh_from_db()
    assert (seeded.key.limits, seeded.key.band) == ({"rpm": 5}, "batch")


def test_what_is_not_his_is_not_found(member: Client, seeded: seed.Seeded) -> None:
    other = key_actions.create(project=seeded.project, name="o", person=seeded.admin, actor="t").key
    assert member.get(f"/account/keys/{other.public_id}").status_code == 404
    assert member.get("/account/levels/0000000000000000").status_code == 404


def test_a_budget_that_never_binds_is_said(admin: Client, seeded: seed.Seeded) -> None:
    limits.change(level=seeded.project, limits={"budget": "10"}, actor="t")
    address = f"/admin/tenants/{seeded.project.public_id}"
    assert "budget" in words(admin, address)
    assert "never binds" not in words(admin, address)
    prices.enter(model="tiny", price=Price(), actor="t")
    assert "The budget does not bind what costs nothing: tiny" in words(admin, address)
    limits.change(level=seeded.project, terms={"when_spent": "gone"}, actor="t")
    assert "There is no model gone" in words(admin, address)


def test_a_model_s_price_is_on_its_page(admin: Client) -> None:
    assert "The cluster’s default" in words(admin, "/admin/models/tiny")
    prices.enter(model="tiny", price=Price(prompt=2500, completion=10**7), actor="t", note="measured")
    prices.enter(model="tiny", price=Price(prompt=2400), actor="t", since="2020-01-01")
    page = words(admin, "/admin/models/tiny")
    assert "0.0025" in page
    assert "10.00" in page
    assert "measured" in page


@pytest.mark.parametrize("language", ["en", "tr"])
def test_pages_cost_a_fixed_number_of_queries(admin: Client, seeded: seed.Seeded, language: str) -> None:
    admin.cookies["llmgw_lang"] = language
    for address in (f"/admin/tenants/{seeded.project.public_id}", f"/account/keys/{seeded.key.public_id}"):
        admin.get(address)
        with CaptureQueriesContext(connection) as before:
            assert admin.get(address).status_code == 200
        for n in range(5):
            key_actions.create(project=seeded.project, name=f"k{n}", person=seeded.admin, actor="t")
        with CaptureQueriesContext(connection) as after:
            admin.get(address)
        assert len(after) <= len(before) <= 25
