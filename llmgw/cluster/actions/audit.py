"""Writing the audit log: called inside the transaction of the change that it records."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.models import AuditEntry


def record(*, actor: str, action: str, subject: str = "", **detail: Any) -> None:
    """`action` reads like `key.create`; `detail` must hold no secret."""
    AuditEntry.objects.create(actor=actor, action=action, subject=subject, detail=detail)
