"""Usage rows and their sums: exact, once, the same from whichever is read, through every door."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from gateway import selectors, spending
from gateway.control import retention, rollups
from gateway.control.ingesting import ingest, keep
from gateway.core.record import Settlement
from gateway.edge.spool import Spool
from gateway.models import Usage, UsageHour
from llmgw.cluster.actions import settings
from llmgw.cluster.errors import Invalid
from tenancy.actions import tree
from tenancy.models import Person
from tests.gateway.test_books import intent
from tests.gateway.usage_rows import BEGIN, mixed, row

pytestmark = pytest.mark.django_db
NOVEMBER = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
ALL = spending.Which(*NOVEMBER)


def sums() -> list[tuple[Any, ...]]:
    return list(UsageHour.objects.order_by(*rollups.NAMES).values_list(*rollups.NAMES, *rollups.SUMS))


def test_the_sums_are_those_of_the_rows_however_they_come() -> None:
    rows = mixed(600)
    for i in range(0, 600, 97):
        keep(rows[i : i + 97])
        keep(rows[max(0, i - 50) : i + 20])  # shipped again
    assert Usage.objects.count() == 600
    added = sums()
    assert sum(hour[7] for hour in added) == 600
    assert rollups.rebuild(*NOVEMBER) == len(added)
    assert sums() == added
    one = rollups.summed(rows, 3600)
    assert [(*s.identity, *s.figures) for s in one] == added


def test_money_is_exact() -> None:
    keep([row(seed=n, cost=10**15 + 1) for n in range(9)])
    assert spending.total(ALL)["cost"] == 9 * 10**15 + 9


@pytest.mark.parametrize("what", ["day", "hour", "model", "project", "key", "person", "team", "organisation"])
def test_rows_and_sums_say_the_same(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(mixed(300))
    of_sums = spending.by(ALL, what)
    monkeypatch.setattr(spending.Which, "per_request", property(lambda self: True))
    assert spending.by(ALL, what) == of_sums


def test_by_tag_session_and_end_user() -> None:
    rows = mixed(200)
    keep(rows)
    found = {r["tag"]: r["requests"] for r in spending.by(ALL, "tag")}
    assert found == {
        "feature=search": sum(r.tags.get("feature") == "search" for r in rows),
        "feature=chat": sum(r.tags.get("feature") == "chat" for r in rows),
        "env.x=prod": sum("env.x" in r.tags for r in rows),
    }
    assert {r["tag"] for r in spending.by(ALL, "tag:feature")} == {"search", "chat"}
    assert {r["session"] for r in spending.by(ALL, "session")} == {"s1", "s2"}
    assert {r["end-user"] for r in spending.by(ALL, "end-user")} == {"u1", "u2"}
    for name, value in (("tag", "feature=chat"), ("tag", "env.x=prod"), ("session", "s1"), ("end_user", "u2")):
        only = spending.Which(*NOVEMBER, **{name: value})
        tag = value.split("=")
        expected = [r for r in rows if (tag[1] == r.tags.get(tag[0]) if name == "tag" else getattr(r, name) == value)]
        assert spending.total(only)["requests"] == len(expected)
        assert spending.total(only)["cost"] == sum(r.cost or 0 for r in expected)
    assert spending.total(spending.Which(*NOVEMBER, tag="env.x"))["requests"] == found["env.x=prod"]
    with pytest.raises(Invalid, match="and not by 'moon'"):
        spending.by(ALL, "moon")


def test_days_by_model_and_the_rest() -> None:
    keep([row(BEGIN + timedelta(hours=n), n, model=f"m{n % 9}", prompt_tokens=100 * (n % 9)) for n in range(36)])
    days, models = spending.days_by(spending.Which(BEGIN, BEGIN + timedelta(hours=36)), "model", most=3)
    assert len(days) == 2
    assert list(models) == ["m8", "m7", "m6", ""]
    assert sum(day["requests"] for model in models.values() for day in model) == 36


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        (("UTC", "Europe/Istanbul", "America/New_York"), 3600),
        (("UTC", "Asia/Kolkata"), 1800),
        (("Asia/Kathmandu",), 900),
        (("Australia/Lord_Howe",), 1800),
        ((), 3600),
    ],
)
def test_a_bucket_is_as_short_as_days_need(zones: tuple[str, ...], expected: int) -> None:
    assert rollups.grain_of([ZoneInfo(zone) for zone in zones]) == expected


def test_a_day_of_a_project_by_another_clock() -> None:
    """Midnight in Kathmandu is 18:15 UTC: buckets get finer for it."""
    organisation = tree.create_organisation(name="o", actor="test")
    team = tree.create_team(organisation=organisation, name="t", actor="test")
    project = tree.create_project(team=team, name="p", actor="test")
    type(project).objects.filter(pk=project.pk).update(time_zone="Asia/Kathmandu")
    midnight = datetime(2026, 11, 4, tzinfo=ZoneInfo("Asia/Kathmandu")).astimezone(UTC)
    keep([row(midnight - timedelta(minutes=1), 1), row(midnight + timedelta(minutes=1), 2)])
    with timezone.override("Asia/Kathmandu"):
        found = spending.by(spending.Which(midnight - timedelta(days=1), midnight + timedelta(days=1)), "day")
    assert [day["requests"] for day in found] == [1, 1]
    since = spending.Which(midnight, midnight + timedelta(days=1), project="p1")
    assert spending.total(since)["cost"] == 1_000_000_007


def test_all_that_a_request_says_is_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "edge-1")
    spool.intend(intent("req_1", tags={"feature": "sea\0rch"}, session="s" * 500, end_user="u\0"))  # type: ignore[arg-type]
    whole = Settlement(
        "req_1", "ok", 200, 1.0, served="spare", hops=("a@r-1: failed",), cost=5, cache="miss", queued_ms=7.5
    )
    spool.settle(whole)
    (tmp_path / "edge-1-000000.jsonl").write_text(  # as written before there was any of this
        '{"i":{"id":"req_0","at":1.7e9,"endpoint":"chat","model":"tiny","asked":"tiny","stream":true}}\n'
        '{"s":{"id":"req_0","outcome":"ok","status":200,"duration_ms":1.0}}\n'
    )
    spool.close()
    ingest(tmp_path)
    found = selectors.request("req_1")
    assert (found["tags"], found["session"], found["end_user"]) == ({"feature": "search"}, "s" * 128, "u")
    assert (found["served"], found["hops"], found["cost"], found["cache"]) == ("spare", ["a@r-1: failed"], 5, "miss")
    assert found["queued_ms"] == 7.5
    old = selectors.request("req_0")
    assert (old["cost"], old["tags"], old["hops"], old["served"]) == (None, {}, [], "")
    assert [s["model"] for s in UsageHour.objects.order_by("model").values("model")] == ["spare", "tiny"]


def test_pages_of_requests_go_on_where_the_last_one_ended() -> None:
    rows = mixed(120) + [row(BEGIN, 10_000 + n) for n in range(30)]  # many of one moment
    keep(rows)
    seen: list[str] = []
    while page := list(selectors.requests(before=seen[-1] if seen else None)[:17]):
        seen += [r.request_id for r in page]
    assert seen == [r.request_id for r in sorted(rows, key=lambda r: (r.at, r.request_id), reverse=True)]
    with pytest.raises(Invalid):
        selectors.requests(before="req_gone")


@pytest.mark.parametrize(
    ("given", "index"),
    [
        ({}, "usage_at"),
        ({"model": "tiny"}, "usage_model_at"),
        ({"project": "p1"}, "usage_project_at"),
        ({"key": "k1"}, "usage_key_at"),
        ({"person": "ada"}, "usage_person_at"),
        ({"session": "s1"}, "usage_session_at"),
        ({"outcome": "timed_out"}, "usage_outcome_at"),
        ({"status": 502}, "usage_status_at"),
    ],
)
def test_each_filter_has_its_index(given: dict[str, Any], index: str) -> None:
    keep(mixed(50))
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
            )
        index = index.removeprefix("usage").removesuffix("_at") + "_at_idx"
    plan = selectors.requests(**given)[:5].explain()
    assert index in plan, plan
    found = [r.request_id for r in selectors.requests(**given)]
    name, value = next(iter(given.items()), ("endpoint", None))
    assert len(found) == sum(value is None or getattr(r, name) == value for r in mixed(50))


def test_requests_with_a_tag() -> None:
    rows = mixed(60)
    keep(rows)
    assert selectors.requests(tag="feature=search").count() == sum(r.tags.get("feature") == "search" for r in rows)
    assert selectors.requests(tag="env.x").count() == sum("env.x" in r.tags for r in rows)
    since = BEGIN + timedelta(hours=10)
    found = selectors.requests(project="p1", since=since, until=since + timedelta(hours=10))
    assert {r.at >= since and r.at < since + timedelta(hours=10) and r.project == "p1" for r in found} == {True}


def test_what_is_old_goes_and_its_sums_stay() -> None:
    now = timezone.now()
    settings.save(document={"keep": {"usage_days": 30}}, base=0, actor="test")
    keep([row(now - timedelta(days=100), 1), row(now - timedelta(days=1), 2), row(now, 3)])
    retention.tidy(now)
    assert Usage.objects.count() == 2
    assert sum(UsageHour.objects.values_list("requests", flat=True)) == 3
    settings.save(document={"keep": {"usage_days": 30, "rollup_days": 60}}, base=1, actor="test")
    retention.tidy(now)
    assert sum(UsageHour.objects.values_list("requests", flat=True)) == 2


def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    organisation = tree.create_organisation(name="acme", actor="test")
    team = tree.create_team(organisation=organisation, name="ml", actor="test")
    project = tree.create_project(team=team, name="train", actor="test")
    mine = {"organisation": organisation.public_id, "team": team.public_id, "project": project.public_id}
    keep([row(BEGIN + timedelta(days=n % 2), n, **mine, tags={"feature": f"f{n % 3}"}, asked="=1+1") for n in range(6)])
    keep([row(BEGIN, 99, project="other")])
    when = ("--from", "2026-11-03", "--to", "2026-11-04")

    def shown(*args: str) -> Any:
        call_command("usage", *args, *when, "--json")
        return json.loads(capsys.readouterr().out)

    found = shown("show", "--project", "acme/ml/train")
    assert [(r["day"], r["requests"], r["cost"]) for r in found["rows"]] == [
        ("2026-11-03", 3, "3.000000021"),
        ("2026-11-04", 3, "3.000000021"),
    ]
    assert found["total"]["cost"] == "6.000000042"
    assert [(r["name"], r["requests"]) for r in shown("show", "--by", "project")["rows"]] == [
        ("acme/ml/train", 6),
        ("other", 1),
    ]
    assert [r["tag"] for r in shown("show", "--by", "tag:feature", "--org", "acme")["rows"]] == ["f0", "f1", "f2"]
    call_command("usage", "show", "--by", "model", *when)
    assert "tiny" in (text := capsys.readouterr().out)
    assert "7.000000049" in text
    with pytest.raises(SystemExit):
        call_command("usage", "show", "--by", "moon")
    with pytest.raises(SystemExit):
        call_command("usage", "show", "--from", "yesterday")
    capsys.readouterr()
    call_command("usage", "export", "--team", "acme/ml", *when)
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(lines) == 6
    assert (lines[0]["cost"], lines[0]["asked"], lines[0]["tags"]) == ("1.000000007", "'=1+1", '{"feature": "f2"}')
    out = tmp_path / "usage.csv"
    call_command("usage", "export", "--out", str(out), *when)
    assert len(out.read_text().splitlines()) == 8
    capsys.readouterr()
    UsageHour.objects.all().delete()
    call_command("usage", "rebuild", "--month", "2026-11")
    assert spending.total(ALL)["requests"] == 7
    with pytest.raises(SystemExit):
        call_command("usage", "rebuild", "--month", "2020-01")
    assert "cannot be made anew" in capsys.readouterr().err


def test_api(client: Client) -> None:
    keep(mixed(40))
    client.force_login(Person.objects.create_superuser("a@example.com", "x" * 12))
    when = "from=2026-11-01&to=2026-11-30"
    by_model = client.get(f"/api/v1/usage?by=model&{when}").json()
    assert {r["model"] for r in by_model} == {"tiny", "big", "spare"}
    total = spending.total(ALL)
    assert sum(round(float(r["cost"]) * 1e9) for r in by_model) == pytest.approx(total["cost"])
    assert len(client.get(f"/api/v1/usage?{when}").json()) == 30
    assert client.get(f"/api/v1/usage?by=end-user&{when}").json()[0]["end_user"] in ("u1", "u2")
    assert client.get("/api/v1/usage?by=moon").status_code == 422
    assert client.get("/api/v1/usage?from=soon").status_code == 422
    seen, before = [], ""
    while before is not None:
        page = client.get(f"/api/v1/requests?limit=7&before={before}").json()
        seen += [r["request_id"] for r in page["results"]]
        before = page["next"]
    assert len(seen) == len(set(seen)) == 40
    assert client.get("/api/v1/requests?status=9999").status_code == 422
    assert {r["tags"]["feature"] for r in client.get("/api/v1/requests?tag=feature=chat").json()["results"]} == {"chat"}
