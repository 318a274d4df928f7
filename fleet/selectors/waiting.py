"""Why a model that loads on demand is as it is: who asks, whose card it waits for, and what becomes of it when."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from agent.wire.facts import device_name
from agent.wire.reason import Reason
from catalog.core.definition import Definition
from fleet import models
from fleet.core import starting, swap
from fleet.core.demand import wants
from fleet.core.replica import State
from fleet.core.world import Demand
from fleet.events import RANK
from fleet.selectors import demand, learned
from fleet.selectors.world import stamp
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.sections import FleetSettings

_GIVES_UP = "it gives up its card"


def on_demand(definition: Definition) -> tuple[Reason, ...]:
    """The answer first; empty for a model that is kept loaded, is not to run, or has replicas that say it better."""
    name, scaling = definition.name, definition.scaling
    if not scaling.min == 0 < scaling.max:
        return ()
    rows = list(models.Replica.objects.filter(model=name).prefetch_related("shards__node"))
    told, now, settings = demand.read(time.time()), time.time(), cluster_settings.in_force().fleet
    asked, start_s = told.demand.get(name, Demand()), starting.start_s(learned.shown(), definition)
    ready = next((r for r in rows if r.state == State.READY), None)
    pending = next((r for r in rows if r.state == State.PENDING and r.held_by), None)
    if ready is not None:
        why = wants(asked, scaling.idle_timeout_s, now, heard=told.heard) or "it goes now: nobody has asked for it"
        answer = Reason("serving", f"{name} serves, loaded on demand: {why}", f"llmgw scale {name} --min 1")
        idle = _idle(asked, scaling.idle_timeout_s, now, name, heard=told.heard)
        safe = _safe(ready, settings, start_s, now)
        return (answer, *_runs(rows, now), *idle, *safe, *_last_eviction(name))
    if pending is not None:
        return (
            Reason("waits_for_card", f"{name} does not serve: {pending.reason}", f"llmgw why {pending.held_by}"),
            *_holder(pending.held_by, told.demand.get(pending.held_by, Demand()), now, heard=told.heard),
            *_when(pending, start_s, now),
            *_asks(asked, now, name),
            Reason("turns", _rules(settings), "llmgw config set fleet.swap_max_wait_s SECONDS"),
            *_last_eviction(name),
        )
    coming = [r for r in rows if r.state in (State.STARTING, State.LOADING)]
    if coming:
        state, fetches = State(coming[0].state), learned.fetches(learned.shown(), {name: definition})
        answer = Reason(state, f"{name} does not serve yet: it is {state}", f"llmgw why {coming[0].public_id}")
        return (
            answer,
            *_runs(rows, now),
            *_comes(coming[0], start_s, fetches.get(coming[0].pk, 0.0), now),
            *_asks(asked, now, name),
        )
    if not any(r.state in (State.PENDING, State.BACKOFF, State.PARKED) for r in rows):
        sentence = f"{name} does not run: it loads on demand, and nobody asks for it; the next request starts it"
        keep = f"llmgw scale {name} --min 1"
        return (
            Reason("idle", sentence, keep),
            *_runs(rows, now),
            *_last_asked(asked, now, name),
            *_took(start_s),
            *_last_eviction(name),
        )
    return ()


def _runs(rows: Iterable[models.Replica], now: float, whose: str = "") -> Iterator[Reason]:
    """What there is of it, and where."""
    for row in rows:
        shards = list(row.shards.all())
        if not shards:
            continue
        where = " and ".join(_seat(s.node.node_id, s.devices) for s in shards)
        since = stamp(row.state_since)
        long = f" for {_ago(now - since)}" if since is not None else ""
        yield Reason("runs", f"{whose}{row.public_id} on {where} is {row.state}{long}", f"llmgw why {row.public_id}")


def _seat(node: str, devices: list[int]) -> str:
    cards = ", ".join(map(device_name, devices))
    return f"{node} (GPU{'' if len(devices) == 1 else 's'} {cards})" if devices else node


def _idle(asked: Demand, idle_timeout_s: float, now: float, name: str, *, heard: bool) -> Iterator[Reason]:
    """Since when nobody asks for what runs, and when it is stopped for that."""
    if asked.in_flight or asked.waiting:
        requests = _many(asked.in_flight, "is answered", "are answered")
        yield Reason(
            "in_use", f"it is in use: {requests} now, and {asked.waiting} wait", f"llmgw request list --model {name}"
        )
    elif heard and asked.last_asked is not None:
        ends = max(asked.last_asked + idle_timeout_s, now)
        at = datetime.fromtimestamp(ends, UTC)
        sentence = (
            f"nobody has asked for it for {_ago(now - asked.last_asked)}: it is stopped in {_ago(ends - now)}, "
            f"at {at:%H:%M:%S} UTC, unless somebody asks or another needs its card"
        )
        yield Reason("idle_since", sentence, f"llmgw scale {name} --min 1")


def _holder(name: str, used: Demand, now: float, *, heard: bool) -> Iterator[Reason]:
    """What the model is doing that has the card."""
    yield from _runs(models.Replica.objects.filter(model=name).prefetch_related("shards__node"), now, f"{name}'s ")
    if not heard:
        return
    if used.in_flight or used.waiting:
        requests = _many(used.in_flight, "is answered", "are answered")
        yield Reason(
            "holder", f"{name} is in use: {requests} now, and {used.waiting} wait", f"llmgw request list --model {name}"
        )
    elif used.last_asked is not None:
        yield Reason("holder", f"nobody has asked for {name} for {_ago(now - used.last_asked)}", f"llmgw why {name}")


def _comes(row: models.Replica, start_s: float | None, fetch_s: float, now: float) -> Iterator[Reason]:
    placed = stamp(row.placed_at)
    if placed is None:
        return
    if start_s is None:
        yield Reason("when", f"it was placed {_ago(now - placed)} ago, and has not been started here before")
        return
    left = placed + fetch_s + start_s - now
    soon = f"it should serve in {_ago(left)}" if left > 0 else f"it takes {_ago(-left)} longer than usual"
    brings = f" and bringing its weights {_ago(fetch_s)}" if fetch_s else ""
    yield Reason("when", f"{soon}, for a start takes {_ago(start_s)} here{brings}")


def _last_asked(asked: Demand, now: float, name: str) -> Iterator[Reason]:
    if asked.last_asked is not None:
        sentence = f"somebody last asked for it {_ago(now - asked.last_asked)} ago"
        yield Reason("last_asked", sentence, f"llmgw request list --model {name}")


def _many(count: int, one: str, several: str) -> str:
    return f"1 request {one}" if count == 1 else f"{count} requests {several}"


def _ago(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h`: as exact as anybody wants to read it."""
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


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
    rows = list(models.ReplicaEvent.objects.filter(replica=replica).exclude(state=RANK).order_by("-id")[:4])
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
