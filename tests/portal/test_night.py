"""What an administrator does at night: each change by whom it was, refusals in words, forms sent twice, nobody else."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from catalog.models import Model
from fleet.models import Certificate, JoinCode, Node, Replica
from llmgw.cluster.models import AuditEntry
from tests.portal import seed

pytestmark = pytest.mark.django_db
READY, BACKOFF, PARKED, PENDING = "r-0000000000", "r-0000000004", "r-0000000005", "r-0000000006"


@pytest.fixture
def certificate(seeded: seed.Seeded) -> Certificate:
    return Certificate.objects.create(
        serial="ab12cd34ef56ab78", common_name="node-1", not_after=datetime.now(UTC) + timedelta(days=300)
    )


def _done() -> list[tuple[str, str, str]]:
    """(who, what, of what), the oldest first, without what the seed did."""
    rows = AuditEntry.objects.exclude(actor="seed").order_by("id")
    return [
        (e.actor, e.action, e.subject) for e in rows if e.action.startswith(("node.", "replica.", "model.", "cert"))
    ]


def _said(client: Client, address: str) -> str:
    return client.get(address).content.decode()


CHANGES = [
    ("/admin/nodes", {"portal": "http://10.0.0.1:8080"}),
    ("/admin/nodes/node-1/change", {"what": "cordon"}),
    ("/admin/nodes/node-1/change", {"what": "drain"}),
    ("/admin/nodes/node-1/change", {"what": "remove", "confirm": "node-1"}),
    ("/admin/nodes/node-1/certificates/ab12cd34ef56ab78/revoke", {"confirm": "node-1"}),
    (f"/admin/replicas/{READY}/change", {"what": "restart"}),
    (f"/admin/replicas/{PARKED}/change", {"what": "retry"}),
    ("/admin/models/tiny/change", {"what": "stop"}),
    ("/admin/models/tiny/change", {"what": "remove", "confirm": "tiny"}),
]


@pytest.mark.parametrize(("address", "form"), CHANGES)
def test_a_member_changes_nothing(member: Client, certificate: Certificate, address: str, form: dict[str, str]) -> None:
    assert member.post(address, form).status_code == 403
    assert _done() == []
    assert not JoinCode.objects.exists()


@pytest.mark.parametrize(("address", "form"), CHANGES)
def test_nothing_without_the_form_s_proof_and_nothing_by_a_link(
    seeded: seed.Seeded, certificate: Certificate, address: str, form: dict[str, str]
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(seeded.admin, backend="django.contrib.auth.backends.ModelBackend")
    assert client.post(address, form).status_code == 403
    assert client.get(address, form).status_code in (200, 404, 405)
    assert _done() == []


def test_a_node_is_cordoned_drained_and_opened_again(admin: Client, seeded: seed.Seeded) -> None:
    for what in ("cordon", "cordon", "drain", "drain", "uncordon", "uncordon"):
        answer = admin.post("/admin/nodes/node-1/change", {"what": what}, follow=True)
        assert 'class="note success"' in answer.content.decode()
    assert _done() == [(seed.ADMIN, f"node.{what}", "node-1") for what in ("cordon", "drain", "uncordon")]
    node = Node.objects.get(node_id="node-1")
    assert (node.cordoned, node.draining) == (False, False)


def test_a_node_in_use_is_not_removed_and_the_way_out_is_said(admin: Client, seeded: seed.Seeded) -> None:
    answer = admin.post(
        "/admin/nodes/node-1/change",
        {"what": "remove", "confirm": "node-1"},
        headers={"referer": "http://testserver/admin/nodes/node-1"},
    )
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "node-1 still runs" in page
    assert '<code translate="no">llmgw node drain node-1</code>' in page
    assert 'href="http://testserver/admin/nodes/node-1"' in page, "the way back to the form"
    assert Node.objects.filter(node_id="node-1").exists()
    assert _done() == []


def test_the_way_back_leads_nowhere_else(admin: Client, seeded: seed.Seeded) -> None:
    form = {"what": "remove", "confirm": "node-1"}
    for referer in ("https://evil.example.test/", "javascript:alert(1)"):
        page = admin.post("/admin/nodes/node-1/change", form, headers={"referer": referer}).content.decode()
        assert "evil" not in page
        assert "javascript:" not in page


def test_a_node_goes_with_its_certificates_once_its_name_was_typed(admin: Client, seeded: seed.Seeded) -> None:
    ends = datetime.now(UTC) + timedelta(days=300)
    Certificate.objects.create(serial="cc", common_name="node-3", not_after=ends)
    for typed in ({}, {"confirm": "node-33"}, {"confirm": ""}):
        asked = admin.post("/admin/nodes/node-3/change", {"what": "remove", **typed}).content.decode()
        assert 'name="confirm"' in asked
        assert 'name="what" value="remove"' in asked
        assert Node.objects.filter(node_id="node-3").exists()
    gone = admin.post("/admin/nodes/node-3/change", {"what": "remove", "confirm": "node-3"})
    assert gone["Location"] == "/admin/nodes"
    assert not Node.objects.filter(node_id="node-3").exists()
    assert Certificate.objects.get(serial="cc").revoked_at is not None
    again = admin.post("/admin/nodes/node-3/change", {"what": "remove", "confirm": "node-3"}, follow=True)
    assert "was gone already" in again.content.decode()
    assert _done() == [(seed.ADMIN, "node.remove", "node-3"), (seed.ADMIN, "certificate.revoke", "node-3")]


def test_a_certificate_is_revoked_once(admin: Client, certificate: Certificate) -> None:
    assert certificate.serial[:12] in _said(admin, "/admin/nodes/node-1")
    address = f"/admin/nodes/node-1/certificates/{certificate.serial}/revoke"
    assert 'name="confirm"' in admin.post(address).content.decode()
    assert "is revoked" in admin.post(address, {"confirm": "node-1"}, follow=True).content.decode()
    assert "revoked already" in admin.post(address, {"confirm": "node-1"}, follow=True).content.decode()
    assert _done() == [(seed.ADMIN, "certificate.revoke", certificate.serial)]
    other = admin.post(f"/admin/nodes/node-2/certificates/{certificate.serial}/revoke", {"confirm": "node-2"})
    assert other.status_code == 404


def test_a_join_code_is_shown_once_with_its_command(admin: Client, seeded: seed.Seeded) -> None:
    answer = admin.post("/admin/nodes", {"node": "gpu-9", "portal": "http://10.0.0.1:8080/"})
    command = re.search(r'id="made-code">llmgw-agent join ([\w-]+) --home', answer.content.decode())
    assert command
    assert "no-store" in answer["Cache-Control"]
    assert command[1] not in _said(admin, "/admin/nodes")
    row = JoinCode.objects.get()
    assert (row.node_id, row.actor) == ("gpu-9", seed.ADMIN)
    assert command[1] not in str(AuditEntry.objects.filter(action="node.join_code").values()), "only its hash is kept"


@pytest.mark.parametrize("form", [{"node": "no spaces", "portal": "http://x"}, {"portal": "ftp://x"}, {"portal": ""}])
def test_a_code_that_could_not_work_is_refused_in_words(
    admin: Client, seeded: seed.Seeded, form: dict[str, str]
) -> None:
    page = admin.post("/admin/nodes", form).content.decode()
    assert 'class="trouble"' in page or "errorlist" in page
    assert not JoinCode.objects.exists()


def test_a_replica_is_restarted_once_by_a_form_sent_twice(admin: Client, seeded: seed.Seeded) -> None:
    form = {"what": "restart", "incarnation": "1"}
    assert re.search(r'name="incarnation" value="1"', _said(admin, f"/admin/replicas/{READY}"))
    admin.post(f"/admin/replicas/{READY}/change", form)
    again = admin.post(f"/admin/replicas/{READY}/change", form, follow=True)
    assert "started again already" in again.content.decode()
    row = Replica.objects.get(public_id=READY)
    assert (row.state, row.incarnation) == ("starting", 2)
    assert _done() == [(seed.ADMIN, "replica.restart", READY)]


@pytest.mark.parametrize(("replica", "state"), [(PARKED, "pending"), (BACKOFF, "backoff")])
def test_a_replica_is_tried_again(admin: Client, seeded: seed.Seeded, replica: str, state: str) -> None:
    assert 'value="retry"' in _said(admin, f"/admin/replicas/{replica}")
    admin.post(f"/admin/replicas/{replica}/change", {"what": "retry", "incarnation": "1"})
    row = Replica.objects.get(public_id=replica)
    assert (row.state, row.failures) == (state, 0)
    assert _done() == [(seed.ADMIN, "replica.retry", replica)]


def test_what_cannot_be_restarted_is_said_in_words(admin: Client, seeded: seed.Seeded) -> None:
    assert 'value="restart"' not in _said(admin, f"/admin/replicas/{PENDING}")
    answer = admin.post(f"/admin/replicas/{PENDING}/change", {"what": "restart"})
    assert answer.status_code == 409
    assert f"llmgw replica show {PENDING}" in answer.content.decode()


def test_a_model_is_stopped_started_and_removed(admin: Client, seeded: seed.Seeded) -> None:
    for what in ("stop", "stop", "start", "start"):
        admin.post("/admin/models/tiny/change", {"what": what})
    assert 'name="confirm"' in admin.post("/admin/models/tiny/change", {"what": "remove"}).content.decode()
    for words in ("is removed", "was gone already"):
        answer = admin.post("/admin/models/tiny/change", {"what": "remove", "confirm": "tiny"}, follow=True)
        assert words in answer.content.decode()
    assert not Model.objects.filter(name="tiny").exists()
    assert _done() == [(seed.ADMIN, f"model.{what}", "tiny") for what in ("stop", "start", "remove")]


@pytest.mark.parametrize(
    "address",
    ["/admin/nodes/node-1/change", f"/admin/replicas/{READY}/change", "/admin/models/tiny/change"],
)
def test_nonsense_is_refused(admin: Client, seeded: seed.Seeded, address: str) -> None:
    assert admin.post(address, {"what": "explode"}).status_code == 422
    assert _done() == []


def test_why_is_a_table_and_the_reason_is_on_top(admin: Client, seeded: seed.Seeded) -> None:
    serving = _said(admin, "/admin/models/tiny")
    assert "does not serve" not in serving
    assert "node-2 is cordoned" in serving
    failing = _said(admin, "/admin/models/qwen2.5-72b")
    top = failing[failing.index("does not serve") : failing.index("Ready / wanted")]
    assert "five failed starts in a row" in top
    assert f"llmgw replica show {PARKED}" in top
    assert "somebody stopped it" in _said(admin, "/admin/models/idle-model")


def test_a_node_that_is_away_is_not_waited_for(admin: Client, seeded: seed.Seeded) -> None:
    page = _said(admin, "/admin/nodes/node-3/doctor")
    assert "did not answer" in page
    assert "node-3 is not connected" in page


def test_findings_are_told_by_word_and_sign(admin: Client) -> None:
    from django.template.loader import render_to_string

    from llmgw.portal import doctor

    found = doctor.read(
        [
            {
                "check": "disk",
                "level": "problem",
                "reason": {"code": "low", "sentence": "<b>full</b>", "command": "df"},
            },
            {"check": "clock", "level": "ok", "reason": {"code": "fine", "sentence": "it agrees"}},
        ]
    )
    shown = render_to_string("portal/nodes/doctor.html", {"examination": found})
    assert shown.index("problem") < shown.index("fine")
    assert "&lt;b&gt;full&lt;/b&gt;" in shown
    assert '<code translate="no">df</code>' in shown
    strange = doctor.read([{"check": 1}])
    assert strange.problem is not None
    assert "cannot be read" in strange.problem.sentence
