"""Traces of replicas' starts and stops, where this machine names a collector. Each node's own spans hang under these:
both sides make the same place in a trace of the replica's id (`agent.wire.trace.of_replica`)."""

from __future__ import annotations

import functools
import os
import socket
from datetime import datetime

from django.conf import settings

from agent.spans import Sender
from agent.wire import trace
from fleet import models

SERVICE = "llmgw-server"


def started(replica: models.Replica, now: datetime, *, code: str = "", nodes: int = 1) -> None:
    """A start is over: it serves, or failed with `code`."""
    _send("start", replica, models.Replica.State.STARTING, now, code, nodes)


def stopped(replica: models.Replica, now: datetime, *, nodes: int = 1) -> None:
    """Nothing of it runs any more."""
    _send("stop", replica, models.Replica.State.STOPPING, now, "", nodes)


def _send(event: str, replica: models.Replica, begun_by: str, now: datetime, code: str, nodes: int) -> None:
    sender = _sender()
    if sender is None:
        return
    context = trace.of_replica(event, replica.public_id, replica.incarnation)
    if not trace.sampled(context.trace_id, settings.MACHINE.tracing_sample_ratio):
        return
    history = models.ReplicaEvent.objects.filter(replica=replica.public_id, state=begun_by)
    began = history.order_by("-id").values_list("at", flat=True).first() or now
    attributes: trace.Attributes = {
        "llmgw.replica": replica.public_id,
        "llmgw.model": replica.model,
        "llmgw.profile": replica.profile,
        "llmgw.incarnation": replica.incarnation,
        "llmgw.nodes": nodes,
    }
    if replica.reason_code:
        attributes["llmgw.reason"] = replica.reason_code
    span = trace.Span(f"replica {event}", context, None, trace.INTERNAL, _ns(began), _ns(now), attributes, code)
    sender.send([span])


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1e9)


def _sender() -> Sender | None:
    machine = settings.MACHINE
    if not machine.tracing_endpoint or not machine.tracing_sample_ratio:
        return None
    return _made(machine.tracing_endpoint, os.getpid())


@functools.cache
def _made(endpoint: str, pid: int) -> Sender:
    return Sender(endpoint, SERVICE, f"{socket.gethostname()}-{pid}", "llmgw.fleet")
