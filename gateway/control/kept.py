"""Kept requests on the control side: shipped from the edges' files into rows, read, forgotten in time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from django.utils import timezone

from gateway.control import parts
from gateway.core import kept
from gateway.core.kept import Kept
from gateway.models import KeptRequest
from llmgw.cluster.errors import NotFound

log = logging.getLogger(__name__)
FOLDER, SUFFIX = "kept", ".kept"
"""Beside the spool; `gateway.edge.kept` writes there."""
LEFT_OVER_S = 3600
"""A file that was begun and not ended by then never will be."""
_AT_ONCE = 200
"""Rows inserted together, files taken in one pass."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """`whole`: nothing is missing of the answer."""

    id: str
    at: datetime
    project: str
    endpoint: str
    model: str
    stream: bool
    request: bytes
    answer: bytes
    whole: bool
    replay_of: str


def ship(spool: Path) -> int:
    """What the edges have written since; how many requests. A crash in between ships some again, and the store takes
    each once."""
    folder = spool / FOLDER
    shipped = 0
    for path in sorted(folder.glob(f"*{SUFFIX}"))[:_AT_ONCE]:
        try:
            batch = kept.decode(path.read_bytes())
        except FileNotFoundError:
            continue  # another one shipped it
        except msgspec.MsgspecError:
            log.warning("kept requests that cannot be read are thrown away: %s", path.name)
            batch = []
        for rows in _slices(list(map(_row, batch))):
            KeptRequest.objects.bulk_create(rows, ignore_conflicts=True)
        path.unlink(missing_ok=True)
        shipped += len(batch)
    return shipped


def forget(spool: Path, now: datetime | None = None) -> int:
    """What is past its project's hours, or of a project that keeps nothing now, or is gone. How many rows."""
    now = now or timezone.now()
    projects = parts.tenancy().projects
    gone = 0
    for project in KeptRequest.objects.order_by("project").values_list("project", flat=True).distinct():
        scope = projects.get(project)
        rows = KeptRequest.objects.filter(project=project)
        if scope is not None and scope.keep is not None:
            rows = rows.filter(at__lt=now - timedelta(hours=scope.keep.hours))
        gone += rows.delete()[0]
    for path in (spool / FOLDER).glob("*.new"):
        if now.timestamp() - path.stat().st_mtime > LEFT_OVER_S:
            path.unlink(missing_ok=True)
    return gone


def bodies(request_id: str) -> Bodies:
    """What was sent and answered; raises `NotFound` with what would have kept it."""
    row = KeptRequest.objects.filter(request_id=request_id).first()
    if row is None:
        raise NotFound(
            "not_kept",
            f"nothing is kept of {request_id}: its project keeps no requests, or not this one, or its hours are over",
            "llmgw keep show",
        )
    return Bodies(
        id=row.request_id,
        at=row.at,
        project=row.project,
        endpoint=row.endpoint,
        model=row.model,
        stream=row.stream,
        request=kept.unpacked(bytes(row.request)),
        answer=kept.unpacked(bytes(row.answer)),
        whole=row.answer_bytes <= kept.MOST_ANSWER_BYTES,
        replay_of=row.replay_of,
    )


def is_kept(request_id: str) -> bool:
    return KeptRequest.objects.filter(request_id=request_id).exists()


def project_of(request_id: str) -> str:
    """For which project it is kept; empty where it is not."""
    return KeptRequest.objects.filter(request_id=request_id).values_list("project", flat=True).first() or ""


def replay_of(request_id: str) -> str:
    """The request that it repeats; empty where it repeats none."""
    return KeptRequest.objects.filter(request_id=request_id).values_list("replay_of", flat=True).first() or ""


def replays(request_id: str) -> list[str]:
    """The ids of those that repeated it, the newest first."""
    return list(KeptRequest.objects.filter(replay_of=request_id).values_list("request_id", flat=True)[:20])


def _row(one: Kept) -> KeptRequest:
    return KeptRequest(
        request_id=one.id,
        at=datetime.fromtimestamp(one.at, UTC),
        project=one.project,
        endpoint=one.endpoint,
        model=one.model[:120],
        stream=one.stream,
        request=one.request,
        answer=one.answer,
        request_bytes=one.request_bytes,
        answer_bytes=one.answer_bytes,
        replay_of=one.replay_of,
    )


def _slices(rows: list[KeptRequest]) -> Iterator[list[KeptRequest]]:
    for i in range(0, len(rows), _AT_ONCE):
        yield rows[i : i + _AT_ONCE]
