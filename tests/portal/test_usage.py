"""Days of use: the same ones on the page, in its tables as CSV and in the selector, in a zone that each says."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from gateway import selectors, spending
from gateway.control.ingesting import keep
from gateway.models import Usage
from llmgw.portal import spreadsheet, traffic
from tenancy.models import Membership
from tests.portal import seed

pytestmark = pytest.mark.django_db

ROWS = [
    ("2026-05-11T23:30:00", 10),
    ("2026-05-12T00:30:00", 20),
    ("2026-05-11T20:59:59", 5),
    ("2026-05-11T21:00:00", 7),
]
NOON = datetime(2026, 5, 12, 20, tzinfo=UTC)
"""The 12th in every zone below."""


def _used(at: datetime, tokens: int, **given: Any) -> None:
    number = Usage.objects.count()
    used = Usage(
        request_id=f"req_at{number:024d}",
        at=at,
        endpoint="chat",
        asked="tiny",
        outcome="ok",
        status=200,
        edge="edge-1",
        prompt_tokens=tokens,
        completion_tokens=0,
        **{"model": "tiny", **given},
    )
    keep([used])


def _days(days: int, now: datetime) -> dict[date, int]:
    return {row["day"]: row["prompt_tokens"] for row in selectors.by_day(days=days, now=now)}


@pytest.mark.parametrize(
    ("zone", "eleventh", "twelfth"),
    [("UTC", 22, 20), ("Europe/Istanbul", 5, 37), ("America/Los_Angeles", 42, 0)],
)
def test_a_day_is_one_of_its_zone(db: None, zone: str, eleventh: int, twelfth: int) -> None:
    for at, tokens in ROWS:
        _used(datetime.fromisoformat(at).replace(tzinfo=UTC), tokens)
    with timezone.override(zone):
        found = _days(2, NOON)
        assert found == {date(2026, 5, 11): eleventh, date(2026, 5, 12): twelfth}
        assert sum(_days(30, NOON).values()) == 42, "nothing is counted twice or left out"
        assert _days(1, NOON) == {date(2026, 5, 12): twelfth}
        assert traffic.total(spending.last_days(2, now=NOON)).prompt == 42
        assert [u.prompt for u in traffic.by_model(spending.last_days(1, now=NOON))] == [twelfth][: twelfth and 1]


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 8), 23), (date(2026, 11, 1), 25), (date(2026, 11, 2), 24)])
def test_a_short_and_a_long_day_are_one_bar_each(db: None, day: date, hours: int) -> None:
    """One token an hour, from a day before to a day after: as many as the day has hours."""
    with timezone.override("America/New_York"):
        begin = timezone.make_aware(datetime(day.year, day.month, day.day)).astimezone(UTC)
        for n in range(-24, hours + 24):
            _used(begin + timedelta(hours=n, minutes=30), 1)
        found = _days(3, begin + timedelta(hours=hours + 12))
        assert list(found) == [day - timedelta(days=1), day, day + timedelta(days=1)]
        assert found[day] == hours
        assert sum(found.values()) == hours + 48


def _table(client: Client, address: str) -> list[dict[str, str]]:
    answer = client.get(address)
    assert answer["Content-Type"].startswith("text/csv")
    assert "attachment" in answer["Content-Disposition"]
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Istanbul", "America/Los_Angeles"])
def test_the_page_its_csv_and_the_selector_agree_and_say_the_zone(admin: Client, zone: str) -> None:
    with timezone.override(zone):
        daily = selectors.by_day(days=30)
        page = admin.get("/account/usage?whose=all").content.decode()
        table = _table(admin, "/account/usage/days.csv?whose=all")
    assert f"zone {zone}" in page
    assert {row["zone"] for row in table} == {zone}
    assert [row["day"] for row in table] == [d["day"].isoformat() for d in reversed(daily)]
    assert [int(row["requests"]) for row in table] == [d["requests"] for d in reversed(daily)]
    assert sum(int(row["prompt_tokens"]) for row in table) == sum(d["prompt_tokens"] for d in daily)
    shown = page[page.index('class="table tall dense"') :]
    figures = [int(n) for n in re.findall(r'</th><td class="n">([\d,]+)</td>', shown)]
    assert figures == [int(row["requests"]) for row in table]


def test_figures_in_a_csv_are_those_of_machines_in_every_language(admin: Client, seeded: seed.Seeded) -> None:
    _used(datetime.now(UTC), 1_234_567, person=seeded.admin.public_id)
    admin.cookies["llmgw_lang"] = "tr"
    assert "1.23" in admin.get("/account/usage").content.decode()
    assert any(
        "." not in row["prompt_tokens"] and int(row["prompt_tokens"]) > 1_234_567
        for row in _table(admin, "/account/usage/days.csv?days=7")
    )


FORMULAS = ['=HYPERLINK("https://evil.example.test")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n@x"]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_is_calculated(admin: Client, seeded: seed.Seeded, name: str) -> None:
    _used(datetime.now(UTC), 10_000_000, model=name, person=seeded.admin.public_id, cost=10**12)
    first = _table(admin, "/account/usage/models.csv")[0]
    assert first["model"] == f"'{name}"
    assert first["prompt_tokens"] == "10000000"


def test_what_is_no_formula_stays() -> None:
    assert [spreadsheet.cell(v) for v in ("tiny", "a=b", 0, None, -3)] == ["tiny", "a=b", 0, "", -3]


def test_a_member_gets_no_table_of_everybody(member: Client, seeded: seed.Seeded) -> None:
    assert sum(int(r["requests"]) for r in _table(member, "/account/usage/days.csv?whose=all")) == 0
    assert _table(member, "/account/usage/models.csv?whose=all") == []


@pytest.mark.parametrize("address", ["/account/usage/days.csv", "/account/usage/models.csv"])
def test_a_stranger_gets_no_table(client: Client, db: None, address: str) -> None:
    assert client.get(address).status_code == 302


def test_owners_see_their_project_and_members_their_own(admin: Client, member: Client, seeded: seed.Seeded) -> None:
    _used(datetime.now(UTC), 1_000, project=seeded.project.public_id, person="somebody", cost=5_000_000_000)
    address = f"/account/usage/models.csv?whose={seeded.project.public_id}"
    assert _table(member, address) == [], "who does not own it gets the own usage"
    Membership.objects.filter(person=seeded.member).update(role=Membership.Role.OWNER)
    own = _table(member, address)
    assert own == _table(admin, address)
    assert float(own[0]["cost"]) > 5
    page = member.get(f"/account/usage?whose={seeded.project.public_id}").content.decode()
    assert "Usage of a project" in page
    assert seeded.project.path in page


def test_a_tag_narrows_the_page(admin: Client, seeded: seed.Seeded) -> None:
    who = seeded.admin.public_id
    _used(datetime.now(UTC), 77, person=who, tags={"feature": "search"}, cost=1_234_567)
    _used(datetime.now(UTC), 88, person=who, tags={"feature": "chat"})
    found = _table(admin, "/account/usage/days.csv?tag=feature%3Dsearch")
    assert sum(int(row["prompt_tokens"]) for row in found) == 77
    assert found[0]["cost"] == "0.001234567"
    page = admin.get("/account/usage?tag=feature%3Dsearch&days=7").content.decode()
    assert "<dd>0.001235</dd>" in page
    assert "tag=feature%3Dsearch" in page
