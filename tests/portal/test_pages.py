"""Every page opens for whom it is meant, in a fixed number of queries, under the policy, in both languages."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tests.portal import seed

PUBLIC = ["/", "/accounts/login/", "/accounts/signup/", "/accounts/password/reset/", "/words.js"]
OWN = ["/chat", "/account", "/account/usage", "/account/profile", "/accounts/password/change/", "/accounts/2fa/"]
ADMINISTRATORS = [
    "/admin/",
    "/admin/nodes",
    "/admin/nodes/node-1",
    "/admin/nodes/node-3",
    "/admin/gpus",
    "/admin/gpus?mode=busy&class=h100-80g",
    "/admin/gpus?view=table",
    "/admin/fabrics",
    "/admin/facility",
    "/admin/models",
    "/admin/models/tiny",
    "/admin/models/tiny/bench",
    "/admin/replicas",
    "/admin/replicas/r-0000000005",
    "/admin/requests",
    "/admin/requests?model=tiny&outcome=ok",
    "/admin/requests/req_" + "0" * 26,
    "/why",
    "/why?of=tiny",
    "/why?of=qwen2.5-72b",
    "/why?noun=node&of=node-2",
    "/why?of=r-0000000005",
    "/admin/cache",
    "/admin/cache?days=7",
    "/admin/tenants",
    f"/admin/tenants/{seed.PROJECT}",
    "/admin/people",
    "/admin/audit",
    "/admin/notices",
    "/admin/what-if",
    "/admin/settings",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_stranger_sees_the_public_pages(client: Client, db: None, address: str) -> None:
    assert client.get(address).status_code == 200


@pytest.mark.parametrize("address", OWN + ADMINISTRATORS)
def test_a_stranger_is_asked_to_sign_in(client: Client, db: None, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/login/")


@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize("address", OWN + ADMINISTRATORS)
def test_an_administrator_sees_every_page(admin: Client, address: str, language: str) -> None:
    admin.cookies["llmgw_lang"] = language
    answer = admin.get(address)
    assert answer.status_code == 200
    page = answer.content.decode()
    assert f'<html lang="{language}"' in page
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert "unsafe" not in answer["Content-Security-Policy"]
    assert not re.search(r"\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page), (
        "the policy blocks what is written into a page"
    )


@pytest.mark.parametrize("address", ADMINISTRATORS)
def test_a_member_is_refused_the_cluster(member: Client, address: str) -> None:
    answer = member.get(address)
    assert answer.status_code == 403
    assert "administrators" in answer.content.decode()


def test_a_member_sees_no_menu_of_what_is_not_his(member: Client) -> None:
    page = member.get("/").content.decode()
    assert "/admin/" not in page
    assert 'href="/chat"' in page


def _queries(client: Client, address: str) -> int:
    client.get(address)
    with CaptureQueriesContext(connection) as found:
        assert client.get(address).status_code == 200
    return len(found)


@pytest.mark.parametrize("address", ["/", "/account", "/account/usage", *ADMINISTRATORS])
def test_queries_do_not_grow_with_the_rows(client: Client, db: None, address: str) -> None:
    small = seed.fill(replicas=7, nodes=3, requests=12)
    client.force_login(small.admin, backend="django.contrib.auth.backends.ModelBackend")
    before = _queries(client, address)
    _more(small)
    after = _queries(client, address)
    assert after <= before
    assert after <= (35 if address == "/admin/models/tiny" else 27)


def _more(small: seed.Seeded) -> None:
    from fleet.models import Node, Replica, Shard
    from tenancy.actions import keys, tree
    from tenancy.models import Person

    for n in range(12):
        node = Node.objects.create(node_id=f"more-{n}", facts={"cpu_count": 8}, reported_at=timezone.now())
        replica = Replica.objects.create(public_id=f"r-more{n:06d}", model="tiny", state="ready")
        Shard.objects.create(replica=replica, node=node, port=19000 + n)
        keys.create(project=small.project, name=f"more {n}", person=small.admin, actor="test", days=1)
        Person.objects.create_user(f"more{n}@example.com", None)
        tree.create_project(team=small.project.team, name=f"more-{n}", actor="test")


@pytest.mark.parametrize("address", ["/admin/", "/admin/replicas", "/chat", "/account/usage"])
def test_a_first_page_weighs_little(admin: Client, address: str) -> None:
    page = admin.get(address).content
    addresses = re.findall(rb'(?:href|src)="(/(?:static|words)[^"]*)"', page)
    assert len(addresses) >= 4
    weight = len(page) + sum(len(admin.get(a.decode().replace("&amp;", "&")).content) for a in addresses)
    assert weight < 100_000, f"{address} weighs {weight} bytes"


@pytest.mark.parametrize(
    ("address", "status"), [("/nothing", 404), ("/admin/nodes/nobody", 404), ("/admin/replicas/r-none", 404)]
)
def test_what_is_not_there_is_said_in_the_house(admin: Client, address: str, status: int) -> None:
    answer = admin.get(address)
    assert answer.status_code == status
    assert reverse("portal:landing") in answer.content.decode()


def test_a_form_without_its_proof_is_refused_in_the_house(seeded: seed.Seeded) -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/preferences", {"theme": "dark"})
    assert answer.status_code == 403
    assert "skip" in answer.content.decode()


def test_what_is_unknown_is_not_zero(admin: Client) -> None:
    page = admin.get("/admin/nodes/node-3").content.decode()
    assert 'class="nil"' in page
    assert "0 GiB" not in page


@pytest.mark.parametrize("name", ["nodes", "replicas", "models", "people", "tenants", "audit", "notices"])
def test_a_search_that_finds_nothing_says_so_and_not_that_there_is_none(admin: Client, name: str) -> None:
    page = admin.get(f"/admin/{name}?q=zzzz").content.decode()
    assert "Nothing is like that." in page
    assert "llmgw node join-code" not in page
    assert "llmgw model add" not in page
