"""Strings from elsewhere, in every place of a page that shows them: text stays text, and nothing is evaluated."""

from __future__ import annotations

import html
import json

import pytest
from django.test import Client

from tests.portal import seed
from tests.portal.payloads import PAYLOADS

pytestmark = pytest.mark.django_db


def _is_text(page: str, payload: str) -> None:
    assert payload not in page or not any(c in payload for c in "<>\"'"), "written into the page as it came"
    assert "<img src=x" not in page
    assert "<svg/onload" not in page
    assert "<script>alert" not in page


@pytest.mark.parametrize("payload", PAYLOADS)
def test_rows_that_others_wrote(admin: Client, seeded: seed.Seeded, payload: str) -> None:
    from fleet.models import Node, Replica, ReplicaEvent, Shard
    from gateway.models import Usage
    from llmgw.cluster.actions import audit
    from tenancy.models import Key, Project

    node = Node.objects.create(
        node_id="hostile",
        labels={"label": payload},
        refused=payload,
        facts={"hostname": payload, "cpu_model": payload, "engines": [{"name": payload, "problem": payload}]},
    )
    replica = Replica.objects.create(
        public_id="r-hostile", model="tiny", state="parked", reason=payload, profile=payload
    )
    Shard.objects.create(
        replica=replica, node=node, port=19999, reason=payload, last_words=[payload], observed="failed"
    )
    ReplicaEvent.objects.create(replica="r-hostile", model="tiny", state="parked", reason=payload)
    Usage.objects.filter(request_id="req_" + "0" * 26).update(model=payload, asked=payload, code=payload, route=payload)
    Key.objects.filter(pk=seeded.key.pk).update(name=payload)
    Project.objects.filter(pk=seeded.project.pk).update(name=payload)
    audit.record(actor=payload, action="test", subject=payload, detail=payload)
    for address in (
        "/account",
        "/account/usage?whose=all",
        "/chat",
        "/admin/",
        "/admin/nodes",
        "/admin/nodes/hostile",
        "/admin/replicas/r-hostile",
        "/admin/models/tiny",
        "/admin/requests",
        "/admin/requests/req_" + "0" * 26,
        "/admin/tenants",
        "/admin/audit",
    ):
        answer = admin.get(address)
        assert answer.status_code == 200, address
        _is_text(answer.content.decode(), payload)
    assert html.escape(payload) in admin.get("/admin/audit").content.decode()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_is_in_the_address(admin: Client, payload: str) -> None:
    for address in ("/admin/nodes", "/admin/audit", "/admin/requests", "/admin/people", "/admin/tenants"):
        answer = admin.get(address, {"q": payload, "model": payload, "page": payload})
        assert answer.status_code == 200
        _is_text(answer.content.decode(), payload)
    _is_text(admin.get("/accounts/login/", {"next": payload}).content.decode(), payload)
    found = admin.get("/find", {"q": payload})
    assert found["Content-Type"] == "application/json"
    assert json.loads(found.content) == {"found": []}


@pytest.mark.parametrize(
    "target", ["https://evil.example.test/", "//evil.example.test", "javascript:alert(1)", "\\\\evil"]
)
def test_a_form_leads_nowhere_else(client: Client, target: str) -> None:
    answer = client.post("/preferences", {"theme": "dark", "next": target})
    assert answer["Location"] == "/"


@pytest.mark.parametrize("target", ["https://evil.example.test/", "//evil.example.test"])
def test_signing_in_leads_nowhere_else(client: Client, seeded: seed.Seeded, target: str) -> None:
    answer = client.post(f"/accounts/login/?next={target}", {"login": seed.ADMIN, "password": seed.PASSWORD})
    assert answer.status_code == 302
    assert "evil" not in answer["Location"]
