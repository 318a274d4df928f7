"""Why a model that loads on demand is as it is: who asks, whose card it waits for, and what becomes of it when."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agent.wire.reason import Reason
from catalog.core.definition import Definition
from fleet import models
from fleet.core import starting, swap
from fleet.core.demand import wants
from fleet.core.replica import State
from fleet.core.world import Demand
from fleet.selectors import demand, learned
from fleet.selectors.world import stamp
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.settings import FleetSettings

_GIVES_UP = "it gives up its card"


def on_demand(definition: Definition) -> tuple[Reason, ...]:
    """The answer first; empty for a model that is kept loaded, is not to run, or has replicas that say it better."""
    name, scaling = definition.name, definition.scaling
    if not scaling.min == 0 < scaling.max:
        return ()
    rows = list(models.Replica.objects.filter(model=name))
    told, now, settings = demand.read(time.time()), time.time(), cluster_settings.in_force().fleet
    asked, start_s = told.demand.get(name, Demand()), starting.start_s(learned.shown(), definition)
    ready = next((r for r in rows if r.state == State.READY), None)
    pending = next((r for r in rows if r.state == State.PENDING and r.held_by), None)
    if ready is not None:
        why = wants(asked, scaling.idle_timeout_s, now, heard=told.heard) or "it goes now: nobody has asked for it"
        answer = Reason("serving", f"{name} serves, loaded on demand: {why}", f"llmgw scale {name} --min 1")
        safe = _safe(ready, settings, start_s, now)
        return (answer, *safe, *_last_eviction(name))
    if pending is not None:
        return (
            Reason("waits_for_card", f"{name} does not serve: {pending.reason}", f"llmgw why {pending.held_by}"),
            *_when(pending, start_s, now),
            *_asks(asked, now, name),
            Reason("turns", _rules(settings), "llmgw config set fleet.swap_max_wait_s SECONDS"),
            *_last_eviction(name),
        )
    if not any(r.state in (State.PENDING, State.STARTING, State.LOADING, State.BACKOFF, State.PARKED) for r in rows):
        sentence = f"{name} does not run: it loads on demand, and nobody asks for it; the next request starts it"
        keep = f"llmgw scale {name} --min 1"
        return (Reason("idle", sentence, keep), *_took(start_s), *_last_eviction(name))
    return ()


def _safe(ready: models.Replica, settings: FleetSettings, start_s: float | None, now: float) -> Iterator[Reason]:
    keeps = (stamp(ready.state_since) or 0.0) + swap.residence_s(settings, start_s) - now
    if keeps > 0:
        sentence = f"no other model gets its card for {keeps:.0f} s: it was loaded a moment ago"
        yield Reason("just_loaded", sentence, "llmgw config set fleet.swap_min_residence_s SECONDS")


def _when(pending: models.Replica, start_s: float | None, now: float) -> Iterator[Reason]:
    free_at = stamp(pending.free_at)
    if free_at is None:
        yield Reason("when", f"when {pending.held_by} gives up its card is not known: it may become idle any moment")
    elif start_s is None:
        yield Reason(
            "when", f"the card should be free in {max(0.0, free_at - now):.0f} s; it has not been started before"
        )
    else:
        yield Reason(
            "when", f"it should serve in {max(0.0, free_at - now) + start_s:.0f} s, for a start takes {start_s:.0f} s"
        )


def _asks(asked: Demand, now: float, name: str) -> Iterator[Reason]:
    if why := wants(asked, 0.0, now, running=False):
        yield Reason("asked", why, f"llmgw request list --model {name}")


def _rules(settings: FleetSettings) -> str:
    return (
        f"a model that loads on demand gives up its card when it was not asked for {settings.swap_idle_s:.0f} s, "
        f"or when another has waited for {settings.swap_max_wait_s:.0f} s"
    )


def _took(start_s: float | None) -> Iterator[Reason]:
    if start_s is not None:
        yield Reason("start_takes", f"a start takes about {start_s:.0f} s here")


def _last_eviction(name: str) -> Iterator[Reason]:
    """The last time that it gave up its card."""
    row = (
        models.ReplicaEvent.objects.filter(model=name, state=State.DRAINING, reason__startswith=_GIVES_UP).order_by(
            "-id"
        )
    ).first()
    if row is not None:
        sentence = f"at {row.at:%Y-%m-%d %H:%M:%S} UTC {row.replica} went: {row.reason}"
        yield Reason("gave_up", sentence, f"llmgw why {row.replica}")


def ended(replica: str) -> tuple[Reason, ...]:
    """Of a replica that is gone: its life line, the last of it first; empty where there never was one."""
    rows = list(models.ReplicaEvent.objects.filter(replica=replica).order_by("-id")[:4])
    if not rows:
        return ()
    last = rows[0]
    because = f": {last.reason}" if last.reason else ""
    where = f" on {last.node}" if last.node else ""
    said = f"{replica} of {last.model}{where} ended at {last.at:%Y-%m-%d %H:%M:%S} UTC{because}"
    before = (
        Reason(row.state, f"at {row.at:%H:%M:%S} {row.state}" + (f": {row.reason}" if row.reason else ""))
        for row in rows[1:]
    )
    return (Reason("ended", said, f"llmgw why {last.model}"), *before)
