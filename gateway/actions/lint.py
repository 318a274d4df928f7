"""Reading a project's kept requests for what breaks their prefixes: of anybody's words, only the few that differ."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gateway.core import kept
from gateway.core.lint import prompt
from gateway.core.lint.judge import Judgement, judge
from gateway.models import KeptRequest, Usage
from llmgw.cluster.actions import audit
from llmgw.cluster.errors import NotFound
from tenancy.models import Project

MOST = 1000
"""Of the newest requests."""


def project(*, project: Project, actor: str, most: int = MOST) -> Judgement:
    """Of its newest kept requests, those of one session together. Raises `NotFound` where nothing is kept."""
    ids = list(KeptRequest.objects.filter(project=project.public_id).values_list("request_id", flat=True)[:most])
    if not ids:
        raise NotFound(
            "nothing_kept",
            f"no requests of {project.path} are kept to be read",
            f"llmgw keep set {project.path} --hours 24",
        )
    audit.record(actor=actor, action="kept.lint", subject=project.path, requests=len(ids))
    return judge(_prompts(ids))


def _prompts(ids: list[str]) -> Iterator[prompt.Prompt]:
    sessions = dict(Usage.objects.filter(request_id__in=ids).values_list("request_id", "session"))
    for row in KeptRequest.objects.filter(request_id__in=ids).order_by("at").iterator(chunk_size=50):
        body = json.loads(kept.unpacked(bytes(row.request)))
        found = prompt.read(row.request_id, f"{row.model} {sessions.get(row.request_id, '')}", body)
        if found is not None:
            yield found
