"""Reading what the whole cluster shares, as plain dicts: settings revisions, the audit log, jobs, notices."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.models import AuditEntry, Delivery, Job, Notice, SettingsRevision


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


def notices(*, limit: int = 100, kind: str | None = None, standing: bool = False) -> list[dict[str, Any]]:
    """The newest, each with what became of it at every webhook. `standing`: only what is so still."""
    rows = Notice.objects.prefetch_related("deliveries")
    if kind:
        rows = rows.filter(kind=kind)
    if standing:
        rows = rows.filter(over_at=None)
    return [notice(row) for row in rows[:limit]]


def notice(row: Notice) -> dict[str, Any]:
    return {
        "id": str(row.public_id),
        "at": row.at,
        "kind": row.kind,
        "subject": row.subject,
        "message": row.message,
        "command": row.command,
        "detail": row.detail,
        "over_at": row.over_at,
        "due_at": row.due_at,
        "told_at": row.told_at,
        "deliveries": [_delivery(d) for d in row.deliveries.all()],
    }


def _delivery(row: Delivery) -> dict[str, Any]:
    return {"webhook": row.to, "state": row.state, "tries": row.tries, "answer": row.answer, "at": row.at}
