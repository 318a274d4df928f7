"""Reading what the whole cluster shares, as plain dicts: settings revisions, the audit log, jobs."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.models import AuditEntry, Job, SettingsRevision


def revisions(limit: int = 100) -> list[dict[str, Any]]:
    """The settings' history, newest first."""
    rows = SettingsRevision.objects.all()[:limit]
    return [{"version": r.version, "at": r.created_at, "actor": r.actor, "note": r.note} for r in rows]


def audit(
    *, limit: int = 100, actor: str | None = None, action: str | None = None, subject: str | None = None
) -> list[dict[str, Any]]:
    """The newest audit entries; `action` may be a beginning, as in `node.`."""
    rows = AuditEntry.objects.all()
    if actor:
        rows = rows.filter(actor__contains=actor)
    if action:
        rows = rows.filter(action__startswith=action)
    if subject:
        rows = rows.filter(subject=subject)
    return [dict(r) for r in rows.values("at", "actor", "action", "subject", "detail")[:limit]]


def jobs(limit: int = 100) -> list[dict[str, Any]]:
    """The newest jobs."""
    return [
        {
            "job": str(j.public_id),
            "kind": j.kind,
            "subject": j.subject,
            "state": j.state,
            "step": j.steps[j.step] if j.step < len(j.steps) else None,
            "progress": j.progress,
            "reason": j.reason,
            "actor": j.actor,
            "created_at": j.created_at,
            "updated_at": j.updated_at,
        }
        for j in Job.objects.all()[:limit]
    ]
