"""The page of notices: what stands, what was told, webhooks added and tested from there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from llmgw.cluster import notifying
from llmgw.cluster.actions import notices
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core import notices as core
from llmgw.cluster.core.notices import Said, Standing
from tenancy.models import Person
from tests.cluster.receiver import Receiver

pytestmark = pytest.mark.django_db(transaction=True)
ADDRESS = "/admin/notices"


@pytest.fixture
def boss() -> Client:
    client = Client()
    client.force_login(Person.objects.create_superuser("boss@example.com", "x" * 12))
    return client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def text(client: Client, address: str = ADDRESS) -> str:
    return client.get(address).content.decode()


def test_a_webhook_is_added_and_tested_from_the_page(boss: Client, receiver: Receiver) -> None:
    assert "Nobody is told yet" in text(boss)
    done = boss.post(f"{ADDRESS}/change", {"what": "add", "webhook": receiver.url("/hooks/SECRET")}, follow=True)
    page = done.content.decode()
    assert "answered the test event: 200" in page
    assert "SECRET" not in page
    assert receiver.got[0].event == {"text": "test: this is a test of llmgw"}
    receiver.answers = [(500, {}, b"")]
    done = boss.post(f"{ADDRESS}/change", {"what": "test"}, follow=True)
    assert "500 Internal Server Error" in done.content.decode()
    done = boss.post(f"{ADDRESS}/change", {"what": "add", "webhook": "ops.example.com"}, follow=True)
    assert "begins with https:// or http://" in done.content.decode()
    assert len(cluster_settings.in_force().notify.webhooks) == 1


def test_what_stands_what_was_told_and_what_was_not(boss: Client, receiver: Receiver) -> None:
    cluster_settings.put(
        path="notify.webhooks", value=[{"url": receiver.url(), "events": ["node_lost"], "name": "night"}], actor="test"
    )
    receiver.answers = [(404, {}, b"no_service")]
    so = {"n1": Said("the node n1 has not been heard for 20 s", "llmgw node show n1")}
    notices.stand({core.NODE_LOST: Standing(so), core.BUDGET_SPENT: Standing({"team a/b": Said("it has spent <all>")})})
    notifying.run()
    page = text(boss)
    assert "2 are so still" in page
    assert "the node n1 has not been heard for 20 s" in page
    assert "404 Not Found: no_service" in page
    assert "no webhook wanted it" in page
    assert "it has spent &lt;all&gt;" in page
    assert "llmgw node show n1" in page
    found = text(boss, f"{ADDRESS}?q=n1")
    assert "team a/b" not in found


def test_it_is_for_administrators(boss: Client, client: Client) -> None:
    client.force_login(Person.objects.create_user("ada@example.com", "x" * 12))
    assert client.get(ADDRESS).status_code in (302, 403, 404)
    assert client.post(f"{ADDRESS}/change", {"what": "test"}).status_code in (302, 403, 404)


def test_the_api_tells_and_tests(boss: Client, receiver: Receiver) -> None:
    cluster_settings.put(path="notify.webhooks", value=[{"url": receiver.url()}], actor="test")
    notices.stand({core.NODE_LOST: Standing({"n1": Said("lost")}), core.MODEL_PARKED: Standing({"m": Said("parked")})})
    notifying.run()
    rows = boss.get("/api/v1/notices?kind=node_lost&standing=true").json()["results"]
    assert [(r["subject"], r["deliveries"][0]["state"]) for r in rows] == [("n1", "sent")]
    (tested,) = boss.post("/api/v1/notices/test").json()
    assert (tested["good"], tested["answer"]) == (True, "200")
