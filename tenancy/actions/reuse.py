"""Forgetting a project's answers that were kept to be given again."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from tenancy.models import Project


@transaction.atomic
def forget(*, project: Project, actor: str) -> Project:
    """What was answered until now is asked anew, at every edge within two seconds."""
    project.reuse_since = timezone.now()
    project.save(update_fields=["reuse_since"])
    audit.record(actor=actor, action="project.cache.clear", subject=project.path)
    announce("tenancy")
    return project
