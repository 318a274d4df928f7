"""The whole system stopped and started from the overview."""

from __future__ import annotations

from django.test import Client

from llmgw.cluster.actions import serving, settings
from llmgw.cluster.models import AuditEntry


def test_it_is_stopped_once_its_name_was_typed_and_started_by_the_banner(admin: Client) -> None:
    asked = admin.post("/admin/system", {"what": "stop"})
    assert asked.status_code == 200
    assert "Every model is taken down" in asked.content.decode()
    assert not settings.in_force().serving.stopped
    assert admin.post("/admin/system", {"what": "stop", "confirm": "system"}).status_code == 302
    assert settings.in_force().serving.stopped
    page = admin.get("/account").content.decode()
    assert "The system is stopped" in page
    assert "Start the system" in page
    assert admin.post("/admin/system", {"what": "start"}).status_code == 302
    assert not settings.in_force().serving.stopped
    assert list(AuditEntry.objects.filter(action__startswith="system.").values_list("action", flat=True)) == [
        "system.start",
        "system.stop",
    ]


def test_a_member_is_told_and_cannot_start_it(member: Client) -> None:
    serving.stop(actor="root", note="moving house")
    page = member.get("/account").content.decode()
    assert "moving house" in page
    assert "Start the system" not in page
    assert member.post("/admin/system", {"what": "start"}).status_code in (302, 403)
    assert settings.in_force().serving.stopped
