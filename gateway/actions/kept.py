"""Looking at what was kept of a request, and sending it once more: both leave a line in the audit log."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx
import msgspec
from django.conf import settings
from django.db import transaction

from gateway.control import kept
from gateway.control.ingesting import ingest
from gateway.control.kept import Bodies
from gateway.core import answers
from gateway.core.answers import Answer
from gateway.core.request import PATHS
from gateway.models import Usage
from llmgw import keys, secrets
from llmgw.cluster.actions import audit
from llmgw.cluster.errors import Conflict, Forbidden, NotFound
from tenancy import access
from tenancy.core.roles import Role
from tenancy.models import Project

TIMEOUT_S = 600.0
BOOKS_S = 4.0
"""What comes later is shown as soon as it is there."""
MOST_BYTES = 8 * 1024 * 1024
"""Of an answer that is read here."""
_PATH_OF = {endpoint: path for path, endpoint in PATHS.items()}


@dataclass(frozen=True, slots=True)
class Replayed:
    """`id` is the new request's; its row and its kept answer follow within seconds. `ttft_ms`: until the first byte."""

    id: str
    of: str
    model: str
    status: int
    answer: Answer
    ttft_ms: float
    duration_ms: float


def require_reader(person: access.Who, project: str) -> None:
    """Owners of the project, and administrators: nobody else sees what was said."""
    row = Project.objects.select_related("team__organisation").filter(public_id=project).first()
    if access.may_administer(person) or (row is not None and access.role_in(person, row) is Role.OWNER):
        return
    raise Forbidden("not_an_owner", "what was said is for owners of the project and for administrators")


@transaction.atomic
def read(*, request_id: str, actor: str) -> Bodies:
    """What was sent and answered; raises `NotFound`."""
    found = kept.bodies(request_id)
    audit.record(actor=actor, action="request.read", subject=request_id, project=found.project)
    return found


def replay(*, request_id: str, model: str, actor: str) -> Replayed:
    """Send it once more, to `model`, through an edge as the gateway itself: past limits and budgets, charged to nobody.
    Raises `NotFound` and `Conflict`."""
    found = kept.bodies(request_id)
    with transaction.atomic():
        audit.record(actor=actor, action="request.replay", subject=request_id, project=found.project, model=model)
    body: dict[str, msgspec.Raw] = msgspec.json.decode(found.request, type=dict[str, msgspec.Raw])
    body["model"] = msgspec.Raw(msgspec.json.encode(model))
    token = keys.ReplayToken(actor[:200], request_id, found.project, time.time() + keys.REPLAY_LIFE_S)
    secret = secrets.read_or_make(settings.MACHINE.secrets_dir, "chat")
    headers = {"authorization": f"Bearer {keys.sign_replay(secret, token)}", "content-type": "application/json"}
    url = f"http://{settings.MACHINE.local_host}:{settings.MACHINE.port}{_PATH_OF[found.endpoint]}"
    began = time.perf_counter()
    first: float | None = None
    pieces: list[bytes] = []
    try:
        with httpx.stream("POST", url, content=msgspec.json.encode(body), headers=headers, timeout=TIMEOUT_S) as got:
            for piece in got.iter_bytes():
                first = first or time.perf_counter()
                if sum(map(len, pieces)) < MOST_BYTES:
                    pieces.append(piece)
    except httpx.HTTPError as e:
        where = f"{settings.MACHINE.local_host}:{settings.MACHINE.port}"
        said = f"the gateway at {where} did not answer it ({type(e).__name__})"
        raise Conflict("gateway_away", said, "llmgw status") from None
    ended = time.perf_counter()
    answer = answers.read(b"".join(pieces))
    if got.status_code in (401, 404):
        raise (NotFound if got.status_code == 404 else Conflict)("not_replayed", answer.problem, "llmgw model list")
    again = got.headers.get("x-request-id", "")
    _await_books(again)
    return Replayed(
        id=again,
        of=request_id,
        model=model,
        status=got.status_code,
        answer=answer,
        ttft_ms=((first or ended) - began) * 1000,
        duration_ms=(ended - began) * 1000,
    )


def _await_books(request_id: str) -> None:
    """Until what was kept of it and its row are in the store: the worker brings them within a second or two, and where
    the edge is on this machine this brings them at once."""
    spool, until = settings.MACHINE.spool_dir, time.monotonic() + BOOKS_S
    while time.monotonic() < until:
        kept.ship(spool)
        ingest(spool)
        if kept.is_kept(request_id) and Usage.objects.filter(request_id=request_id).exists():
            return
        time.sleep(0.1)
