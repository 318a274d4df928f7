"""Join codes: made for one node, used once, within their hour; the answer is a certificate."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from fleet import addresses, models
from fleet.actions import certificates
from fleet.core import joining as core
from llmgw.cluster import pki
from llmgw.cluster.actions import audit
from llmgw.cluster.errors import Conflict, Forbidden, Invalid

LIFE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Made:
    """A code that was just made: shown once."""

    code: str = field(repr=False)
    node_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Joined:
    """What the joining machine is answered."""

    certificate: str
    authority: str
    server: str
    mac: str


def make(*, node_id: str = "", portal: str = "", actor: str) -> Made:
    """A code for `node_id`, or for any node that does not exist yet. `portal`: the address that the node dials."""
    if node_id:
        certificates.checked_node_id(node_id)
    secret = secrets.token_hex(32)
    expires_at = timezone.now() + LIFE
    with transaction.atomic():
        models.JoinCode.objects.filter(expires_at__lt=timezone.now() - timedelta(days=30)).delete()
        models.JoinCode.objects.create(
            code_id=core.code_id(secret),
            proof_key=core.proof_key(secret).hex(),
            node_id=node_id,
            actor=actor,
            expires_at=expires_at,
        )
        audit.record(actor=actor, action="node.join_code", subject=node_id)
    return Made(core.code(portal or settings.MACHINE.portal_url, secret, node_id), node_id, expires_at)


def use(*, code_id: str, node_id: str, csr: str, mac: str, address: str) -> Joined:
    """Answers a joining machine. `address` is where it asked from, for the audit log."""
    with transaction.atomic():
        row = models.JoinCode.objects.select_for_update().filter(code_id=code_id).first()
        key = bytes.fromhex(row.proof_key) if row is not None else secrets.token_bytes(32)
        if not core.same(core.request_mark(key, node_id, csr), mac) or row is None:
            raise Forbidden("unknown_join_code", "this join code is not known here", "llmgw node join-code")
        if row.used_at is not None:
            raise Conflict(
                "join_code_used",
                f"this join code was used by {row.used_by} at {row.used_at:%H:%M} UTC: make a new one",
                "llmgw node join-code",
            )
        if row.expires_at <= timezone.now():
            raise Conflict(
                "join_code_expired",
                f"this join code ended at {row.expires_at:%Y-%m-%d %H:%M} UTC: make a new one",
                "llmgw node join-code",
            )
        if row.node_id and row.node_id != node_id:
            raise Conflict(
                "join_code_for_another",
                f"this join code is for the node {row.node_id}, not for {node_id}",
                f"llmgw node join-code {node_id}",
            )
        if not row.node_id and models.Node.objects.filter(node_id=node_id).exists():
            raise Conflict(
                "node_exists",
                f"there is a node {node_id} already: choose another id, or make a code for this node",
                f"llmgw node join-code {node_id}",
            )
        try:
            public_key = pki.request_key(csr)
        except pki.PkiProblem as e:
            raise Invalid("bad_request", str(e)) from None
        issued = certificates.sign(node_id=node_id, public_key=public_key, actor=f"join code of {row.actor}")
        row.used_at, row.used_by = timezone.now(), node_id
        row.save(update_fields=["used_at", "used_by"])
        audit.record(actor=f"join code of {row.actor}", action="node.enrol", subject=node_id, address=address)
    authority = pki.read_authority(settings.MACHINE.pki_dir).pem
    server = addresses.link_url(settings.MACHINE)
    return Joined(issued.pem, authority, server, core.answer_mark(key, issued.pem, authority, server))
