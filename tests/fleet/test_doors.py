"""Commands, API and the join door: the same answers, refusals as sentences and statuses."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from agent.wire.facts import GpuFacts, NvLink
from fleet import bootstrap, models, selectors
from fleet.actions import certificates, joining
from fleet.core import joining as marks
from llmgw.cluster import pki
from llmgw.cluster.errors import Conflict
from tests.fleet.agents import FACTS
from tests.fleet.rows import joined, link_is_up, serving, tiny

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _ready(db: None) -> None:
    bootstrap.ensure(settings.MACHINE)
    link_is_up()


@pytest.fixture
def api(db: None) -> APIClient:
    from tenancy.models import Person

    client = APIClient()
    client.force_authenticate(Person.objects.create_superuser("root@example.com", "a long password"))
    return client


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    call_command(*words, "--json")
    return json.loads(capsys.readouterr().out)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    call_command(*words)
    return capsys.readouterr().out


def test_nodes_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    joined()
    replica = serving()
    assert [n["node"] for n in run(capsys, "node", "list")] == ["n1"]
    listed = shown(capsys, "node", "list")
    assert "n1" in listed
    assert "1 of 8" in listed
    assert replica.public_id in shown(capsys, "node", "show", "n1")
    assert run(capsys, "node", "label", "n1", "rack=a", "old-")["labels"] == {"rack": "a"}
    assert run(capsys, "node", "cordon", "n1")["cordoned"]
    assert selectors.node("n1")["state"] == "cordoned"
    assert run(capsys, "node", "drain", "n1")["draining"]
    assert run(capsys, "node", "uncordon", "n1") == {"node": "n1", "cordoned": False, "draining": False}
    with pytest.raises(SystemExit) as ended:
        call_command("node", "remove", "n1")
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert "still runs 1 replica" in err
    assert "llmgw node drain n1" in err
    assert run(capsys, "node", "remove", "n1", "--force")["node"] == "n1"
    assert run(capsys, "node", "list") == []


def test_a_node_that_is_away_cannot_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    joined()
    models.Node.objects.update(connected=False)
    with pytest.raises(SystemExit):
        call_command("node", "logs", "n1")
    assert "n1 is not connected, so it cannot be asked" in capsys.readouterr().err


def test_replicas_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    joined()
    replica = serving()
    assert [r["state"] for r in run(capsys, "replica", "list", "--model", "tiny")] == ["ready"]
    assert run(capsys, "replica", "list", "--model", "other") == []
    assert "history:" in shown(capsys, "replica", "show", replica.public_id)
    assert run(capsys, "replica", "restart", replica.public_id)["state"] == "starting"
    with pytest.raises(SystemExit) as ended:
        call_command("replica", "retry", replica.public_id)
    assert ended.value.code == 1
    assert "there is nothing to try again" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        call_command("replica", "show", "r-none")


def test_explain_placement_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    joined()
    serving()
    assert "one more replica of tiny would go to n1" in shown(capsys, "explain-placement", "tiny")
    assert run(capsys, "explain-placement", "tiny")["candidates"][0]["chosen"]


def test_explain_placement_tells_the_cards(capsys: pytest.CaptureFixture[str]) -> None:
    bridged = tuple(GpuFacts(n, gpu_class="a40-45g", numa_node=0, nvlinks=(NvLink((n + 2) % 4, 4),)) for n in range(4))
    joined(facts=replace(FACTS, gpus=bridged))
    tiny(gpus=2, gpu_class="a40-45g")
    expected = "go to n1 with profile cpu, on GPUs 0, 2 (4 NVLinks between them, NUMA node 0)"
    assert expected in shown(capsys, "explain-placement", "tiny")
    assert run(capsys, "explain-placement", "tiny")["devices"] == ["0", "2"]


def test_certificates_by_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    issued = run(capsys, "cert", "issue", "n5", "--out", str(tmp_path / "n5"))
    assert sorted(p.name for p in (tmp_path / "n5").iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert (tmp_path / "n5/key.pem").stat().st_mode & 0o777 == 0o600
    assert [(c["node"], c["state"]) for c in run(capsys, "cert", "list")] == [("n5", "valid")]
    assert run(capsys, "cert", "revoke", "n5", "--reason", "sold")["revoked"] == [issued["serial"]]
    assert [(c["state"], c["reason"]) for c in run(capsys, "cert", "list")] == [("revoked", "sold")]
    crl = x509.load_pem_x509_crl((settings.MACHINE.pki_dir / "crl.pem").read_bytes())
    assert crl.get_revoked_certificate_by_serial_number(int(issued["serial"], 16))
    with pytest.raises(SystemExit) as ended:
        call_command("cert", "issue", "a node", "--out", str(tmp_path))
    assert ended.value.code == 2


def test_a_local_agents_home_is_made_once_and_again_when_its_certificate_is_revoked(tmp_path: Path) -> None:
    import yaml

    def enrol() -> bool:
        return certificates.enrol_local(node_id="me", home=tmp_path, server_url="wss://x:1/agent/link", actor="test")

    assert enrol()
    document = yaml.safe_load((tmp_path / "agent.yaml").read_text())
    assert document["node_id"] == "me"
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump({**document, "labels": {"rack": "a"}}))
    assert not enrol()
    assert yaml.safe_load((tmp_path / "agent.yaml").read_text())["labels"] == {"rack": "a"}
    certificates.revoke(which="me", actor="test")
    assert enrol()
    assert models.Certificate.objects.count() == 2


def _asked(code: str, node_id: str, **changes: str) -> dict[str, str]:
    held = json.loads(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)))
    key = pki.new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, node_id)])
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = csr.public_bytes(serialization.Encoding.PEM).decode()
    mark = marks.request_mark(marks.proof_key(held["s"]), node_id, pem)
    return {"id": marks.code_id(held["s"]), "node_id": node_id, "csr": pem, "mac": mark, **changes}


def _post(client: Client, body: Any) -> tuple[int, Any]:
    answer = client.post("/agent/join", json.dumps(body), content_type="application/json")
    return answer.status_code, answer.json()


@pytest.fixture(autouse=True)
def _no_tries_yet() -> None:
    from fleet import nudges

    nudges.client().delete("llmgw:join:127.0.0.1")


def test_a_join_code_gives_one_certificate_once(client: Client) -> None:
    code = joining.make(node_id="n8", actor="test").code
    status, answer = _post(client, _asked(code, "n8"))
    assert status == 200
    found = x509.load_pem_x509_certificate(answer["certificate"].encode())
    assert certificates.common_name(found) == "n8"
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(answer["authority"].encode()))
    assert answer["server"].startswith("wss://")
    secret = json.loads(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)))["s"]
    expected = marks.answer_mark(marks.proof_key(secret), answer["certificate"], answer["authority"], answer["server"])
    assert answer["mac"] == expected
    status, answer = _post(client, _asked(code, "n8"))
    assert status == 409
    assert answer["error"]["code"] == "join_code_used"


def test_a_join_is_refused_with_a_sentence(client: Client) -> None:
    code = joining.make(node_id="n8", actor="test").code
    free = joining.make(actor="test").code
    joined("n1")
    for body, status, found in [
        (_asked(code, "n9"), 409, "join_code_for_another"),
        (_asked(free, "n1"), 409, "node_exists"),
        (_asked(code, "n8", mac="0" * 64), 403, "unknown_join_code"),
        (_asked(code, "n8", id="0" * 16), 403, "unknown_join_code"),
        ({"id": "x"}, 422, "bad_request"),
        ("nonsense", 422, "bad_request"),
    ]:
        answered, answer = _post(client, body)
        assert (answered, answer["error"]["code"]) == (status, found)
        assert answer["error"]["message"]
    models.JoinCode.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert _post(client, _asked(code, "n8"))[1]["error"]["code"] == "join_code_expired"
    assert not models.Certificate.objects.exists()
    assert client.get("/agent/join").status_code == 405


def test_joining_is_limited_by_address(client: Client) -> None:
    for _ in range(20):
        assert _post(client, {"id": "x"})[0] == 422
    assert _post(client, {"id": "x"})[0] == 429


def test_the_fleet_by_api(api: APIClient) -> None:
    joined()
    replica = serving()
    assert [n["node"] for n in api.get("/api/v1/nodes").json()["results"]] == ["n1"]
    assert api.get("/api/v1/nodes/n1").json()["running"][0]["replica"] == replica.public_id
    assert api.post("/api/v1/nodes/n1/cordon").json()["state"] == "cordoned"
    assert api.post("/api/v1/nodes/n1/uncordon").json()["state"] == "ready"
    labels = api.post("/api/v1/nodes/n1/labels", {"labels": {"rack": "a"}}, format="json").json()["labels"]
    assert labels == {"rack": "a"}
    assert api.get("/api/v1/nodes/n9").status_code == 404
    refused = api.delete("/api/v1/nodes/n1")
    assert refused.status_code == 409
    assert refused.json()["error"]["command"] == "llmgw node drain n1"
    assert [r["replica"] for r in api.get("/api/v1/replicas?model=tiny").json()["results"]] == [replica.public_id]
    assert api.get(f"/api/v1/replicas/{replica.public_id}/events").json()[0]["state"] == "ready"
    assert api.post(f"/api/v1/replicas/{replica.public_id}/restart").json()["state"] == "starting"
    assert api.get("/api/v1/placements/tiny").json()["node"] == "n1"
    made = api.post("/api/v1/nodes/join-code", {"node": "n2"}, format="json")
    assert made.status_code == 201
    assert api.get("/api/v1/certificates").json()["results"] == []


def test_settings_and_audit_by_api(api: APIClient) -> None:
    shown = api.get("/api/v1/settings").json()
    assert shown["in_force"]["gateway"]["retries"] == 2
    change = {"base": shown["version"], "document": {"gateway": {"retries": 4}}, "note": "api"}
    saved = api.post("/api/v1/settings", change, format="json")
    assert saved.json()["in_force"]["gateway"]["retries"] == 4
    assert api.post("/api/v1/settings", change, format="json").status_code == 409
    bad = {"base": 1, "document": {"nothing": 1}}
    assert api.post("/api/v1/settings", bad, format="json").status_code == 422
    assert [r["note"] for r in api.get("/api/v1/settings/history").json()] == ["api"]
    assert api.post("/api/v1/settings/1/rollback").json()["version"] == 2
    audited = api.get("/api/v1/audit?action=settings.").json()["results"]
    assert {e["actor"] for e in audited} == {"root@example.com (API)"}
    assert api.get("/api/v1/jobs").json()["results"] == []


def test_the_api_is_for_administrators(client: Client) -> None:
    for path in ("nodes", "replicas", "certificates", "settings", "audit", "jobs", "placements/tiny"):
        assert client.get(f"/api/v1/{path}").status_code in (401, 403)


def test_an_authority_kept_elsewhere_is_said(tmp_path: Path, settings: Any) -> None:
    import dataclasses

    home = tmp_path / "home"
    settings.MACHINE = dataclasses.replace(settings.MACHINE, home=home)
    pki.ensure_authority(home / "pki")
    (home / "pki/ca-key.pem").unlink()
    with pytest.raises(Conflict, match="kept elsewhere"):
        certificates.issue(node_id="n1", out=tmp_path / "out", actor="test")
