"""Issuing and revoking nodes' certificates, each with its row; a revoked one loses its live socket within seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from fleet import models, nudges
from llmgw.cluster import pki
from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Conflict, Invalid, NotFound

_NODE_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")

_AT_MOST_EVERY = timedelta(seconds=60)


def checked_node_id(node_id: str) -> str:
    """`node_id` if it may be one; a certificate's common name has at most 64 characters."""
    if not _NODE_ID.fullmatch(node_id):
        raise Invalid(
            "bad_node_id",
            f"a node id has up to 64 letters, digits, dots, dashes and underscores, and {node_id[:80]!r} is none",
        )
    return node_id


def sign(*, node_id: str, public_key: ec.EllipticCurvePublicKey, actor: str, days: int = pki.NODE_DAYS) -> pki.Issued:
    """A certificate for a node's key."""
    checked_node_id(node_id)
    try:
        issued = pki.issue(pki.ensure_authority(settings.MACHINE.pki_dir), public_key, node_id, days)
    except pki.PkiProblem as e:
        raise Conflict("cannot_issue", str(e)) from None
    with transaction.atomic():
        models.Certificate.objects.create(serial=issued.serial, common_name=node_id, not_after=issued.not_after)
        audit.record(actor=actor, action="certificate.issue", subject=node_id, serial=issued.serial)
    return issued


def issue(*, node_id: str, out: Path, actor: str, days: int = pki.NODE_DAYS) -> pki.Issued:
    """A new key and certificate as `ca.pem`, `cert.pem` and `key.pem` in `out`, for carrying to the node."""
    key = pki.new_key()
    issued = sign(node_id=node_id, public_key=key.public_key(), actor=actor, days=days)
    try:
        pki.write(out / "key.pem", pki.key_pem(key), 0o600)
        pki.write(out / "cert.pem", issued.pem, 0o644)
        pki.write(out / "ca.pem", pki.read_authority(settings.MACHINE.pki_dir).pem, 0o644)
    except OSError as e:
        raise Invalid("cannot_write", f"the certificate cannot be written to {out}: {e.strerror}") from None
    return issued


def renew(*, node_id: str, csr: str, serial: str) -> pki.Issued:
    """The next certificate of a node, asked for over the link that it opened with the one of `serial`, which stays
    good until its end. Not before half of that one's time is over: a node that asks earlier has a wrong clock."""
    row = models.Certificate.objects.filter(serial=serial).first()
    if row is None or row.revoked_at is not None:
        raise Conflict("certificate_revoked", f"the certificate {serial} was revoked: it is not renewed")
    now = timezone.now()
    newer = models.Certificate.objects.filter(common_name=node_id, revoked_at=None, created_at__gt=now - _AT_MOST_EVERY)
    if newer.exclude(serial=serial).exists():
        raise Conflict("renewed_just_now", f"{node_id} was given a certificate within the last minute: it is to wait")
    left = row.not_after - now
    if left > timedelta(days=pki.NODE_DAYS) / 2:
        raise Conflict(
            "not_due",
            f"its certificate is good for {left.days} more days and is not renewed before {pki.NODE_DAYS // 2}: "
            "is its clock right?",
        )
    try:
        key = pki.request_key(csr)
    except pki.PkiProblem as e:
        raise Invalid("bad_request", str(e)) from None
    return sign(node_id=node_id, public_key=key, actor=f"node {node_id}")


def revoke(*, which: str, actor: str, reason: str = "") -> list[str]:
    """Revokes a serial, or every certificate of a node id; the serials that it ended."""
    now = timezone.now()
    with transaction.atomic():
        rows = models.Certificate.objects.select_for_update().filter(revoked_at=None)
        serials = list(rows.filter(serial=which.lower()).values_list("serial", flat=True)) or list(
            rows.filter(common_name=which).values_list("serial", flat=True)
        )
        if not serials:
            raise NotFound(
                "no_such_certificate",
                f"there is no valid certificate with serial or node id {which}",
                "llmgw cert list",
            )
        models.Certificate.objects.filter(serial__in=serials).update(revoked_at=now, reason=reason[:200])
        audit.record(actor=actor, action="certificate.revoke", subject=which, serials=serials, reason=reason)
        announce("fleet")
    publish_crl()
    nudges.link([which])
    return serials


def publish_crl() -> None:
    """`crl.pem` as the rows have it. Where the authority's key is elsewhere the rows alone are the list."""
    revoked = [
        (serial, at)
        for serial, at in models.Certificate.objects.exclude(revoked_at=None).values_list("serial", "revoked_at")
        if at is not None
    ]
    try:
        pki.write_crl(settings.MACHINE.pki_dir, revoked)
    except pki.PkiProblem:
        return


def enrol_local(*, node_id: str, home: Path, server_url: str, actor: str) -> bool:
    """An agent's home on this machine, ready to run: `agent.yaml` and `pki/`. True when a certificate was made."""
    wanted = {"node_id": node_id, "server": server_url}
    files = {"ca": "pki/ca.pem", "cert": "pki/cert.pem", "key": "pki/key.pem"}
    made = not _usable(home / files["cert"], home / files["key"], node_id)
    if made:
        issue(node_id=node_id, out=home / "pki", actor=actor)
    else:
        pki.write(home / files["ca"], pki.read_authority(settings.MACHINE.pki_dir).pem, 0o644)
    path = home / "agent.yaml"
    present: dict[str, Any] = {}
    if path.exists():
        present = yaml.safe_load(path.read_text()) or {}
    document = {"address": "127.0.0.1", **present, **wanted, "tls": files}
    # A cluster on one machine starts in seconds and fetches nothing by itself; the wheel serves. `true` changes that.
    document["engines"] = {"install": False, **(present.get("engines") or {})}
    if document != present:
        pki.write(path, yaml.safe_dump(document, sort_keys=False), 0o600)
    return made


def _usable(cert: Path, key: Path, node_id: str) -> bool:
    """Whether the certificate there is ours, this node's, not revoked, and lasts a while yet."""
    try:
        found = x509.load_pem_x509_certificate(cert.read_bytes())
        found.verify_directly_issued_by(pki.read_authority(settings.MACHINE.pki_dir).certificate)
    except Exception:  # whatever is wrong with it, a new one mends it
        return False
    if not key.exists() or common_name(found) != node_id:
        return False
    if found.not_valid_after_utc - datetime.now(UTC) < timedelta(days=30):
        return False
    row = models.Certificate.objects.filter(serial=pki.serial_of(found)).first()
    return row is None or row.revoked_at is None


def common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""
