"""The control plane's side of renewing a node's certificate."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from cryptography import x509
from django.utils import timezone

from agent.node.renewal import Renewal
from agent.node.settings import Tls
from agent.wire.messages import Certified, Certify
from fleet import models
from fleet.actions import certificates
from llmgw.cluster.errors import Conflict, Invalid
from llmgw.cluster.models import AuditEntry
from tests.fleet.agents import Agent, Papers, papers
from tests.fleet.links import Link


def request(cert: Papers) -> str:
    return Renewal(Tls(cert.folder / "ca.pem", cert.folder / "cert.pem", cert.folder / "key.pem"), "n1").request()


def ends_in(days: int) -> str:
    """As if the node's certificate had been issued long ago; its serial."""
    row = models.Certificate.objects.get(common_name="n1")
    models.Certificate.objects.filter(pk=row.pk).update(
        not_after=timezone.now() + timedelta(days=days), created_at=timezone.now() - timedelta(days=500)
    )
    return row.serial


@pytest.mark.django_db
def test_what_is_not_to_be_renewed_is_said(tmp_path: Path) -> None:
    cert = papers("n1", tmp_path)
    csr = request(cert)
    serial = ends_in(700)
    with pytest.raises(Conflict, match=r"good for 699 more days and is not renewed before 365: is its clock right\?"):
        certificates.renew(node_id="n1", csr=csr, serial=serial)
    ends_in(100)
    with pytest.raises(Invalid, match="not a certificate signing request"):
        certificates.renew(node_id="n1", csr="hello", serial=serial)
    issued = certificates.renew(node_id="n1", csr=csr, serial=serial)
    assert issued.common_name == "n1"
    with pytest.raises(Conflict, match="within the last minute"):
        certificates.renew(node_id="n1", csr=csr, serial=serial)
    assert models.Certificate.objects.filter(common_name="n1", revoked_at=None).count() == 2, "the old one stays good"
    assert AuditEntry.objects.filter(action="certificate.issue", actor="node n1").count() == 1
    certificates.revoke(which="n1", actor="test")
    with pytest.raises(Conflict, match="was revoked: it is not renewed"):
        certificates.renew(node_id="n1", csr=csr, serial=serial)


@pytest.mark.slow
async def test_a_node_gets_its_next_certificate_over_its_link(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        await agent.say(Certify(request(cert)))
        early = await agent.expect(Certified)
        assert early.certificate is None
        assert "is its clock right?" in str(early.problem)
        await sync_to_async(ends_in)(100)
        await agent.say(Certify(request(cert)))
        given = await agent.expect(Certified)
    assert given.certificate is not None
    assert "n1" in x509.load_pem_x509_certificate(given.certificate.encode()).subject.rfc4514_string()
    (tmp_path / "cert.pem").write_text(given.certificate)
    async with Agent(cert, link.port) as again:
        await again.join()
