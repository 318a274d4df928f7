"""Why a model, a replica or a node is as it is: what placement and the rows know, the answer first."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from agent.wire.reason import Reason
from catalog import selectors as catalog
from catalog.selectors import Entry
from fleet import models
from fleet.core import parking, scale
from fleet.core.replica import State
from fleet.core.world import Demand, WantedModel
from fleet.selectors import demand, details, silent
from fleet.selectors.explaining import explain_placement
from fleet.selectors.waiting import ended, on_demand
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import NotFound, Refusal
from llmgw.durations import written as duration
from llmgw.zones import known

MOST = 3
SCALED = "scaled"
"""The state in a history's lines that are about the number of replicas, and about none of them."""


def model(ref: str, model: str | None = None) -> tuple[Reason, ...]:
    """Whether it serves; raises `NotFound`."""
    entry = catalog.entry(ref)
    name, show = entry.name, f"llmgw model show {entry.name}"
    if entry.definition is None:
        return (
            Reason("bad_definition", f"{name} does not serve: its definition cannot be read", show),
            *entry.problems,
        )
    replicas = details.replicas(model=name)
    ready = sum(r["state"] == State.READY for r in replicas)
    if entry.stopped and not ready:
        stopped = Reason("stopped", f"{name} does not serve: somebody stopped it", f"llmgw model start {name}")
        return (stopped, *_left(name))
    if told := on_demand(entry.definition):
        return (*told, *number(entry, len(replicas))[1])
    try:
        placement = explain_placement(name)
    except Refusal as e:
        return (Reason("not_placed", f"{name} does not serve", show), *e.problems)
    one_more = Reason("one_more", placement["answer"], f"llmgw explain-placement {name}")
    count, changes = number(entry, len(replicas))
    wanted = max(count.replicas, entry.definition.scaling.min)
    if ready:
        some = f"{ready} of the {wanted} replicas that are wanted" if wanted >= ready else f"{ready} replicas"
        answer = Reason("serving", f"{name} serves: {some} can be asked", f"llmgw replica list --model {name}")
    else:
        answer = Reason("not_serving", f"{name} does not serve: none of its {len(replicas)} replicas is ready", show)
    return (
        answer,
        *keep_from_serving(entry, replicas, placement),
        *_parked(name, replicas),
        *(() if count.reason.code in ("wanted", "none_wanted") else (count.reason,)),
        *changes,
        *((one_more,) if replicas else ()),
    )


def _left(name: str) -> tuple[Reason, ...]:
    """What of it is to end, and cannot hear that yet."""
    return tuple(
        Reason(silent.CODE, f"{found.replica} is left of it: {found.sentence}", found.command)
        for found in silent.all_left(name)[:MOST]
    )


def number(entry: Entry, replicas: int) -> tuple[scale.Count, tuple[Reason, ...]]:
    """How many replicas are wanted now and why, and the last time that the load moved that number."""
    assert entry.definition is not None
    now, settings = timezone.now(), cluster_settings.in_force()
    told = demand.read(now.timestamp())
    count = scale.count(
        WantedModel(entry.definition, entry.stopped),
        told.demand.get(entry.name, Demand()),
        now.timestamp(),
        settings.serving,
        zone=known(cluster_settings.time_zone(settings)),
        running=replicas > 0,
        heard=told.heard,
    )
    last = models.ReplicaEvent.objects.filter(model=entry.name, state=SCALED).first()
    if last is None:
        return count, ()
    ago = (now - last.at).total_seconds()
    sentence = f"{duration(round(ago))} ago its load moved it {last.reason}"
    return count, (Reason(SCALED, sentence, f"llmgw scale {entry.name}"),)


def keep_from_serving(entry: Entry, replicas: list[dict[str, Any]], placement: dict[str, Any]) -> tuple[Reason, ...]:
    """Each different reason of a replica once; where none has one, what placement says."""
    told = {
        r["reason"]: Reason(r["reason_code"], r["reason"], f"llmgw replica show {r['replica']}")
        for r in replicas
        if r["reason"]
    }
    if told:
        return tuple(told.values())[:MOST]
    if not replicas and entry.definition is not None and entry.definition.scaling.min == 0:
        command = f"llmgw scale {entry.name} --min 1"
        return (Reason("none_wanted", "no replica is wanted: its scaling begins at 0", command),)
    if not replicas:
        return (Reason("not_placed", placement["answer"], f"llmgw explain-placement {entry.name}"),)
    return ()


def _parked(name: str, replicas: list[dict[str, Any]]) -> tuple[Reason, ...]:
    """What becomes of those that are parked."""
    found = [r for r in replicas if r["state"] == State.PARKED]
    if not found:
        return ()
    serves = any(r["state"] == State.READY for r in replicas)
    command, nodes = f"llmgw replica retry {found[0]['replica']}", sorted({n for r in found for n in r["nodes"]})
    if parking.its_own(((r["reason_code"], r["nodes"]) for r in found), serves=serves):
        sentence = f"it failed on {' and '.join(nodes)} and serves nowhere: the fault is its own, and no other is tried"
        return (Reason("its_own_fault", sentence, command),)
    sentence = f"{', '.join(r['replica'] for r in found)}: parked, and counted for nothing; another is tried elsewhere"
    return (Reason("parked_apart", f"{sentence} where there is room", command),)


_WORDS = {State.BACKOFF: "waiting to be started again", State.PARKED: "parked after failed starts"}


def replica(ref: str, model: str | None = None) -> tuple[Reason, ...]:
    """Why it is in its state; raises `NotFound`."""
    try:
        found = details.replica(ref)
    except NotFound:
        if gone := ended(ref):
            return gone
        raise
    name, state, logs = found["replica"], found["state"], f"llmgw replica logs {found['replica']}"
    where = f" on {found['node']}" if found["node"] else ""
    because = f": {found['reason']}" if found["reason"] else ""
    command = {
        State.PENDING: f"llmgw explain-placement {found['model']}",
        State.PARKED: f"llmgw replica retry {name}",
        State.BACKOFF: logs,
    }.get(state, f"llmgw replica show {name}")
    if found["reason_code"] == silent.CODE:
        command = next(left.command for left in silent.all_left(found["model"]) if left.replica == name)
    reasons = [
        Reason(
            found["reason_code"] or state,
            f"{name} of {found['model']}{where} is {_WORDS.get(state, state)}{because}",
            command,
        )
    ]
    if found["failures"]:
        again = f"; the next try is at {found['next_try_at']:%H:%M:%S}" if found["next_try_at"] else ""
        reasons.append(Reason("failures", f"it failed to start {found['failures']} times in a row{again}", logs))
    for shard in found["shards"]:
        if shard["reason"] and shard["reason"] != found["reason"]:
            reasons.append(Reason("shard", f"its rank {shard['rank']}: {shard['reason']}", logs))
        if shard["last_words"]:
            reasons.append(Reason("last_words", f"its engine's last words: {shard['last_words'][-1]}", logs))
    if found["stale"]:
        reasons.append(
            Reason("stale", "its model's definition has changed since it started", f"llmgw replica restart {name}")
        )
    return tuple(reasons)


_CHANGED_BY = {
    "cordoned": "llmgw node uncordon {node}",
    "draining": "llmgw node uncordon {node}",
    "unsettled": "llmgw node settle {node}",
    "unknown": "llmgw status",
    "away": "llmgw node logs {node}",
    "lost": "llmgw node logs {node}",
}


def node(ref: str, model: str | None = None) -> tuple[Reason, ...]:
    """Why it is in its state, and what runs there that is not well; raises `NotFound`."""
    found = details.node(ref)
    name, state = found["node"], found["state"]
    said = [
        f"the machine {name} is {state}: {found['reason']}" if found["reason"] else f"the machine {name} is {state}"
    ]
    if found["replicas"]:
        said.append(f"{found['ready']} of its {found['replicas']} replicas can be asked")
    command = _CHANGED_BY.get(state, "llmgw node show {node}").format(node=name)
    reasons = [Reason(state, "; ".join(said), command)]
    for engine in found["engine_details"]:
        if engine["problem"]:
            reasons.append(
                Reason("engine", f"its engine {engine['name']}: {engine['problem']}", f"llmgw node show {name}")
            )
    for row in found["running"]:
        if row["reason"]:
            reasons.append(
                Reason(
                    row["reason_code"] or row["state"],
                    f"{row['replica']} of {row['model']} is {row['state']}: {row['reason']}",
                    f"llmgw why {row['replica']}",
                )
            )
    if found["strays"]:
        reasons.append(
            Reason(
                "strays",
                f"{len(found['strays'])} engines run there that no replica describes",
                f"llmgw node show {name}",
            )
        )
    return tuple(reasons)
