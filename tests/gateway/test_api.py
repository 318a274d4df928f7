"""The doors to the traffic: `llmgw request`, `/api/v1/requests`, `/api/v1/usage`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client

from gateway import selectors
from gateway.control.ingesting import ingest
from gateway.edge.spool import Spool
from llmgw.cluster.errors import NotFound
from tenancy.models import Person
from tests.gateway.test_books import intent, settled

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "edge-1")
    for n in range(3):
        spool.intend(intent(f"req_{n}", at=1.7e9 + n, project=f"p{n % 2}"))
        spool.settle(settled(f"req_{n}"))
    spool.close()
    ingest(tmp_path)


@pytest.mark.usefixtures("rows")
def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("request", "list", "--limit", "2", "--json")
    assert [r["request_id"] for r in json.loads(capsys.readouterr().out)] == ["req_2", "req_1"]
    call_command("request", "show", "req_1", "--json")
    assert json.loads(capsys.readouterr().out)["completion_tokens"] == 2
    call_command("request", "list", "--project", "p1")
    shown = capsys.readouterr().out
    assert "req_1" in shown
    assert "req_0" not in shown
    with pytest.raises(SystemExit) as ended:
        call_command("request", "show", "req_9")
    assert ended.value.code == 1
    assert "there is no request req_9" in capsys.readouterr().err
    with pytest.raises(NotFound):
        selectors.request("req_9")


@pytest.mark.usefixtures("rows")
def test_api(client: Client) -> None:
    assert client.get("/api/v1/requests").status_code in (401, 403)
    client.force_login(Person.objects.create_superuser("a@example.com", "x" * 12))
    found = client.get("/api/v1/requests?project=p0").json()
    assert [r["request_id"] for r in found["results"]] == ["req_2", "req_0"]
    assert client.get("/api/v1/requests/req_1").json()["route"] == "the only replica"
    assert client.get("/api/v1/requests/req_9").status_code == 404
    assert len(client.get("/api/v1/usage?days=3").json()) == 3
    assert client.get("/api/v1/usage?days=0").status_code == 422
    assert client.post("/api/v1/requests", {}).status_code == 405
    assert client.get("/django-admin/gateway/usage/").status_code == 200
