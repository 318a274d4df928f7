"""Traces of the reconciler's passes and of replicas' starts and stops, where this machine names a collector. Each
node's own spans hang under a start or stop: both sides make the same place in a trace of the replica's id
(`agent.wire.trace.of_replica`)."""

from __future__ import annotations

import functools
import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from agent.spans import Sender, new_id
from agent.wire import trace
from fleet import models
from fleet.core import plan as steps

SERVICE = "llmgw-server"
_MOST_STEPS = 100
"""Of one pass; `llmgw.steps` of its span counts all."""


@dataclass(frozen=True, slots=True)
class Times:
    """A pass's parts, in Unix seconds: it began, the world was loaded, the plan was made, the plan was written."""

    began: float
    loaded: float
    planned: float
    committed: float


def passed(decided: Iterable[steps.Step], times: Times) -> None:
    """A pass that changed something: what it did, and how long each part took. One that found nothing to do, as nearly
    all do, is no trace."""
    sender, decided = _sender(), tuple(decided)
    trace_id = secrets.randbits(128) or 1
    if sender is None or not decided or not trace.sampled(trace_id, settings.MACHINE.tracing_sample_ratio):
        return
    root = trace.Context(trace_id, new_id(), True)

    def span(name: str, start: float, end: float, parent: trace.Context | None, **told: str | int) -> trace.Span:
        context = trace.Context(trace_id, new_id(), True) if parent is not None else root
        attributes: trace.Attributes = {f"llmgw.{k}": v for k, v in told.items()}
        return trace.Span(name, context, parent, trace.INTERNAL, int(start * 1e9), int(end * 1e9), attributes, "")

    spans = [span("reconcile", times.began, times.committed, None, steps=len(decided))]
    parts = (
        ("load world", times.began, times.loaded),
        ("plan", times.loaded, times.planned),
        ("commit", times.planned, times.committed),
    )
    spans += [span(name, start, end, root) for name, start, end in parts]
    commit = spans[-1].context
    for step in decided[:_MOST_STEPS]:
        told = _told(step)
        spans.append(span(type(step).__name__.lower(), times.planned, times.committed, commit, **told))
    sender.send(spans)


def _told(step: steps.Step) -> dict[str, str | int]:
    """A step's own figures; of its reason the code, never the sentence."""
    told: dict[str, str | int] = {}
    for name in ("model", "replica", "profile", "node"):
        if value := getattr(step, name, ""):
            told[name] = value
    if (reason := getattr(step, "reason", None)) is not None:
        told["reason"] = reason.code
    if isinstance(step, steps.Place):
        told["node"] = ", ".join(seat.node for seat in step.seats)
        told["nodes"] = len(step.seats)
    return told


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
