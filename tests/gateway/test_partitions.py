"""The months of the usage rows on PostgreSQL, and many who ship at once."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from gateway import selectors
from gateway.control import partitions, retention, rollups
from gateway.control.ingesting import keep
from gateway.models import Usage, UsageHour
from llmgw.cluster.actions import settings
from tenancy.actions import keys, tree
from tests.gateway.usage_rows import mixed, row

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="partitions are PostgreSQL's: LLMGW_TEST_STORE"),
    pytest.mark.django_db(transaction=True),
]
NOW = datetime(2027, 1, 15, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _afresh() -> None:
    """Only the default partition, as after the migration."""
    _forget_months()


def names() -> list[str]:
    return [p.name.removeprefix("gateway_usage_") for p in partitions.partitions()]


def test_months_are_made_ahead_and_take_what_strayed() -> None:
    keep([row(NOW - timedelta(days=3000), 1)])
    assert names(), "the ingest makes what it needs"
    _forget_months()
    Usage.objects.bulk_create([row(NOW, 2), row(NOW + timedelta(days=31), 3)])
    partitions.ensure(NOW)
    assert names() == ["2027_01", "2027_02", "2027_03"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM gateway_usage ORDER BY at")
        assert [r[0] for r in cursor.fetchall()] == [f"gateway_usage_{n}" for n in ("default", "2027_01", "2027_02")]
    partitions.ensure(NOW, [NOW - timedelta(days=60), NOW - timedelta(days=900)], NOW - timedelta(days=400))
    assert names() == ["2026_11", "2027_01", "2027_02", "2027_03"], "what is older than rows are kept gets no month"
    partitions._known.clear()
    partitions.ensure(NOW)
    assert len(names()) == 4


def _forget_months() -> None:
    partitions._known.clear()
    with connection.cursor() as cursor:
        for partition in partitions.partitions():
            cursor.execute(f'DROP TABLE "{partition.name}"')


def test_old_months_go_whole() -> None:
    settings.save(document={"keep": {"usage_days": 60}}, base=0, actor="test")
    partitions.ensure(NOW, [NOW - timedelta(days=31 * n) for n in range(5)], NOW - timedelta(days=400))
    keep([row(NOW - timedelta(days=31 * n), n) for n in range(5)])
    Usage.objects.bulk_create([row(NOW - timedelta(days=2000), 99)])
    retention.tidy(NOW)
    assert names() == ["2026_11", "2026_12", "2027_01", "2027_02", "2027_03"]
    assert Usage.objects.count() == 3
    assert sum(UsageHour.objects.values_list("requests", flat=True)) == 5


def test_only_the_months_that_are_asked_for_are_looked_into() -> None:
    rows = [row(NOW + timedelta(days=31 * n), n) for n in range(3)]
    partitions.ensure(NOW)
    keep(rows)
    plan = selectors.requests(since=NOW - timedelta(days=1), until=NOW + timedelta(days=1)).explain()
    assert "2027_01" in plan
    assert "2027_02" not in plan
    with connection.execute_wrapper(seen := _Seen()):
        assert selectors.request(rows[1].request_id)["request_id"] == rows[1].request_id
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {seen.statements[0][0]}", seen.statements[0][1])
        plan = "\n".join(r[0] for r in cursor.fetchall())
    assert "2027_02" in plan
    assert "2027_01" not in plan


class _Seen:
    def __init__(self) -> None:
        self.statements: list[tuple[str, object]] = []

    def __call__(self, execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        self.statements.append((sql, params))
        return execute(sql, params, many, context)


def test_making_a_month_waits_for_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is in the default partition: rows go there meanwhile, and the next pass moves them."""
    monkeypatch.setattr(partitions, "WAIT_MS", 200)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE gateway_usage_default IN ROW EXCLUSIVE MODE")
            held.set()
            release.wait(20)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        partitions.ensure(NOW)
        assert names() == []
    finally:
        release.set()
        thread.join()
    partitions.ensure(NOW)
    assert len(names()) == 3


def test_four_who_ship_the_same_rows_at_once_count_each_once() -> None:
    """In any order, at the same time: no deadlock, no row twice, no sum twice."""
    organisation = tree.create_organisation(name="o", actor="test")
    team = tree.create_team(organisation=organisation, name="t", actor="test")
    project = tree.create_project(team=team, name="p", actor="test")
    key = keys.create(project=project, name="k", actor="test").key
    failed: list[BaseException] = []

    def ship(seed: int) -> None:
        rows = shared(key.public_id)
        random.Random(seed).shuffle(rows)
        try:
            for i in range(0, len(rows), 40):
                keep(rows[i : i + 40])
        except BaseException as e:
            failed.append(e)
        finally:
            connection.close()

    threads = [threading.Thread(target=ship, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert Usage.objects.count() == 600
    added = _sums()
    assert sum(s[7] for s in added) == 600
    rollups.rebuild(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    assert _sums() == added
    key.refresh_from_db()
    assert key.last_used_at == max(r.at for r in shared(key.public_id) if r.key)


def _sums() -> list[tuple[object, ...]]:
    return list(UsageHour.objects.order_by(*rollups.NAMES).values_list(*rollups.NAMES, *rollups.SUMS))


def shared(key: str) -> list[Usage]:
    rows = mixed(600, seed=7)
    for made in rows:
        made.key = key if made.key else ""
    return rows
