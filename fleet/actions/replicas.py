"""What people do with replicas: start one afresh, try a failed or parked one again."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from fleet import events, models, nudges
from fleet.core.replica import State
from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Conflict, NotFound

RESTARTED = (State.STARTING, State.LOADING, State.READY, State.BACKOFF)
RETRIED = (State.PARKED, State.BACKOFF)


def restart(*, replica: str, actor: str, incarnation: int | None = None) -> None:
    """The engine is ended and started again where it is. Asked of a parked one, this is `retry`. With the
    `incarnation` that somebody looked at, a later one is left alone: asking twice restarts once."""
    with transaction.atomic():
        events.serialise()
        row = _locked(replica, incarnation)
        if row.state == State.PARKED:
            retry(replica=replica, actor=actor)
            return
        if row.state not in RESTARTED:
            raise Conflict(
                "cannot_restart",
                f"{replica} is {row.state}; only what runs can be restarted",
                f"llmgw replica show {replica}",
            )
        events.move(
            row,
            State.STARTING,
            timezone.now(),
            incarnation=row.incarnation + 1,
            failures=0,
            next_try_at=None,
            reason=f"restarted by {actor}",
            reason_code="restart",
        )
        nodes = _moved(row)
        audit.record(actor=actor, action="replica.restart", subject=replica, model=row.model)
        announce("fleet", "endpoints")
    nudges.link(nodes)


def retry(*, replica: str, actor: str, incarnation: int | None = None) -> None:
    """A parked replica is placed anew, one that waits is tried at once; its failures are forgotten."""
    with transaction.atomic():
        events.serialise()
        row = _locked(replica, incarnation)
        if row.state == State.PARKED:
            _moved(row)
            row.shards.all().delete()
            events.move(
                row,
                State.PENDING,
                timezone.now(),
                incarnation=row.incarnation + 1,
                failures=0,
                next_try_at=None,
                reason=f"to be tried again, says {actor}",
                reason_code="retry",
            )
        elif row.state == State.BACKOFF:
            models.Replica.objects.filter(pk=row.pk).update(failures=0, next_try_at=timezone.now())
        else:
            raise Conflict(
                "cannot_retry",
                f"{replica} is {row.state}; there is nothing to try again",
                f"llmgw replica show {replica}",
            )
        audit.record(actor=actor, action="replica.retry", subject=replica, model=row.model)
        announce("fleet", "endpoints")


def _moved(row: models.Replica) -> list[str]:
    """Its nodes' desired state has moved; their ids."""
    nodes = models.Node.objects.filter(shards__replica=row)
    names = list(nodes.values_list("node_id", flat=True))
    models.Node.objects.filter(node_id__in=names).update(generation=F("generation") + 1)
    return names


def _locked(replica: str, incarnation: int | None) -> models.Replica:
    row = models.Replica.objects.select_for_update().filter(public_id=replica).first()
    if row is None:
        raise NotFound("no_such_replica", f"there is no replica {replica}", "llmgw replica list")
    if incarnation is not None and row.incarnation != incarnation:
        raise Conflict(
            "already_restarted", f"{replica} was started again since: look at it first", f"llmgw replica show {replica}"
        )
    return row
