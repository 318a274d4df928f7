"""Taking in what nodes say: rows change only where the news differ. What follows for replicas: `following`; what no row
describes: `strays`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from agent.wire.messages import Report
from agent.wire.shard import ShardObserved, ShardState
from fleet import events, models
from fleet.actions.following import follow, held_by_others
from fleet.actions.strays import OVER, take_in
from fleet.core import replica as core
from llmgw.cluster.changes import announce

_MOVING = ("memory_free_bytes", "disk_free_bytes")
"""Facts that heartbeats carry; kept beside the others, so that they can be written alone."""
_ENDED = (ShardState.STOPPED, ShardState.FAILED)
_BEATEN = ("taken_generation", *_MOVING, "load_1m")
_BEAT = (
    f"UPDATE {models.Node._meta.db_table} SET last_seen = %s, "  # noqa: S608 - our own names
    + ", ".join(f"{name} = COALESCE(%s, {name})" for name in _BEATEN)
    + " WHERE id = %s"
)


@dataclass(frozen=True, slots=True)
class Beat:
    """When a node was heard last, and the newest of its moving figures, gathered between two writes."""

    node_id: str
    at: datetime
    taken_generation: int | None = None
    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    load_1m: float | None = None
    since: datetime | None = None
    """When the connection by which it was heard was let in: of an older one the node's row takes nothing. None: any."""


@dataclass(frozen=True, slots=True)
class News:
    """What a heartbeat told of a node's engines that was not known."""

    node_id: str
    shards: tuple[ShardObserved, ...]
    taken_generation: int | None = None


def report(*, node_id: str, message: Report, store_id: str) -> None:
    """Everything that a node said of itself, in one transaction."""
    reports([(node_id, message)], store_id=store_id)


def reports(told: Iterable[tuple[str, Report]], *, store_id: str) -> None:
    """What many nodes said of themselves, in one transaction."""
    now = timezone.now()
    with transaction.atomic():
        events.serialise()
        parts = {"fleet"}
        for node_id, message in told:
            parts |= _report(node_id, message, store_id, now)
        announce(*sorted(parts))


def _report(node_id: str, message: Report, store_id: str, now: datetime) -> set[str]:
    facts = {k: v for k, v in msgspec.to_builtins(message.facts).items() if v is not None}
    node = models.Node.objects.select_for_update().filter(node_id=node_id).first()
    if node is None:  # removed just now: the link's next round closes its socket
        return set()
    foreign = _foreign(node, message, store_id)
    if foreign and message.generation is not None and message.store_id == store_id:
        # The store was restored to an earlier state: its numbers must pass those the node has taken, and what
        # was given up on it then is to be given up again.
        node.generation = max(node.generation, message.generation) + 1
        if node.strays.filter(foreign=True).update(dismissed=False):
            node.settled = False
        _catch_up(node, message.shards)
    changes: dict[str, Any] = {
        "facts": facts,
        "agent_version": message.facts.agent_version or node.agent_version,
        "foreign": held_by_others(node, message.facts),
        "memory_free_bytes": message.facts.memory_free_bytes,
        "disk_free_bytes": message.facts.disk_free_bytes,
        "generation": node.generation,
        "settled": node.settled,
        "taken_generation": message.generation if message.store_id == store_id else None,
        "reported_at": now,
    }
    for name, value in changes.items():
        setattr(node, name, value)
    node.save(update_fields=list(changes))
    return _shards(node, message.shards, full=True, foreign=foreign, now=now)


def heartbeat(*, node_id: str, shards: Iterable[ShardObserved], taken_generation: int | None) -> None:
    """Shards that a heartbeat told anew; the figures beside them are written by `beats`."""
    heartbeats([News(node_id, tuple(shards), taken_generation)])


def heartbeats(told: Iterable[News]) -> None:
    """The news of many nodes' heartbeats, in one transaction."""
    now = timezone.now()
    told = list(told)
    with transaction.atomic():
        events.serialise()
        parts: set[str] = set()
        for news in told:
            node = models.Node.objects.filter(node_id=news.node_id).first()  # as the news before this one left it
            if node is None:
                continue
            if news.taken_generation is not None:
                node.taken_generation = news.taken_generation
            parts |= _shards(node, news.shards, full=True, foreign=False, now=now)
        if parts:
            announce(*sorted(parts))


def beats(batch: Iterable[Beat]) -> frozenset[str]:
    """Many nodes' sign of life and figures in one transaction; absent figures keep what was known. It waits for nobody
    who works on a node: those that others are writing just now are given back, to be written in a moment."""
    newest = {b.node_id: b for b in batch}
    if not newest:
        return frozenset()
    with transaction.atomic():
        rows = models.Node.objects.filter(node_id__in=newest)
        free = list(rows.select_for_update(skip_locked=True).values_list("node_id", "pk", "connected_at"))
        known = {node: pk for node, pk, since in free if newest[node].since in (None, since)}
        # Not `bulk_update`: its one statement for a thousand nodes takes a second to be put together.
        adapt = connection.ops.adapt_datetimefield_value
        values = [
            (adapt(b.at), *(getattr(b, name) for name in _BEATEN), known[node])
            for node, b in newest.items()
            if node in known
        ]
        with connection.cursor() as cursor:
            cursor.executemany(_BEAT, values)
    left = set(newest) - {node for node, _, _ in free}
    return frozenset(models.Node.objects.filter(node_id__in=left).values_list("node_id", flat=True) if left else ())


def found_again(nodes: Iterable[str]) -> None:
    """Replicas that were given up on nodes that were merely silent, are heard again, and have nothing new to tell."""
    lost = models.Shard.objects.filter(replica__state=core.State.LOST, observed__in=core.ALIVE)
    replicas = sorted(set(lost.filter(node__node_id__in=list(nodes)).values_list("replica_id", flat=True)))
    if not replicas:
        return
    with transaction.atomic():
        events.serialise()
        parts: set[str] = set()
        for replica in replicas:
            parts |= follow(replica, present=True, now=timezone.now())
        if parts:
            announce(*sorted(parts))


def _foreign(node: models.Node, message: Report, store_id: str) -> bool:
    """Whether what the node runs was ordered by another store, or by a later state of this one."""
    if message.store_id is None:
        return False
    return message.store_id != store_id or (message.generation or 0) > node.generation


def _catch_up(node: models.Node, observed: tuple[ShardObserved, ...]) -> None:
    """A restored store's older numbers would order running engines to start afresh: it takes over theirs."""
    rows = {f"{s.replica.public_id}.{s.rank}": s for s in node.shards.select_related("replica")}
    ports = {s.port for s in rows.values()}
    for news in observed:
        row = rows.get(news.shard_id)
        if row is None or news.state in OVER or news.incarnation <= row.replica.incarnation:
            continue
        models.Replica.objects.filter(pk=row.replica_id).update(incarnation=news.incarnation)
        if news.port is not None and news.port not in ports:  # each try is on another port
            models.Shard.objects.filter(pk=row.pk).update(port=news.port)
            ports.add(news.port)


def _shards(
    node: models.Node, observed: tuple[ShardObserved, ...], *, full: bool, foreign: bool, now: datetime
) -> set[str]:
    """The parts that changed with them."""
    said = {o.shard_id: o for o in observed}
    rows = list(models.Shard.objects.filter(node=node).select_related("replica"))
    known = {f"{r.replica.public_id}.{r.rank}": r for r in rows}
    up_to_date = node.taken_generation is not None and node.taken_generation >= node.generation
    parts: set[str] = set()
    for shard_id, row in known.items():
        news = said.get(shard_id)
        if news is None and not (full and (up_to_date or row.observed)):
            continue
        before = row.observed
        changed = _write(row, news, now)
        if before != row.observed and row.replica.spec.get("profile", {}).get("nodes", 1) > 1:
            events.of_rank(row, node.node_id)
        if changed or row.replica.state in (core.State.STOPPING, core.State.LOST):
            present = news is not None or up_to_date
            ended = news is None or news.state in _ENDED
            if present and ended and row.replica.state == core.State.STOPPING and _release(row):
                parts.add("fleet")
                continue
            parts |= follow(row.replica_id, present=present, now=now)
    return parts | take_in(node, [o for i, o in said.items() if i not in known], foreign=foreign)


def _release(row: models.Shard) -> bool:
    """A rank that has ended gives its card and port back while others of its replica are still ending, or are on a node
    that may never be heard again. False: it is the last one."""
    if not models.Shard.objects.filter(replica=row.replica_id).exclude(pk=row.pk).exists():
        return False
    models.Shard.objects.filter(pk=row.pk).delete()
    return True


def _write(row: models.Shard, news: ShardObserved | None, now: datetime) -> bool:
    """The shard's row as its node sees it; whether anything but its figures changed."""
    before = (row.observed, row.observed_incarnation, row.reason, row.pid, row.address, row.progress)
    if news is None:
        row.observed, row.pid, row.progress = "", None, None
    else:
        row.observed = news.state.value
        row.observed_incarnation = news.incarnation
        row.reason = news.reason or ""
        row.cause = news.cause or ""
        row.last_words = list(news.last_words or row.last_words)
        row.pid = news.pid
        row.address = news.address or ""
        row.progress = news.progress
        row.memory_measured_bytes = news.memory_bytes or row.memory_measured_bytes
        if news.devices_memory is not None:
            row.devices_memory = {str(m.device): m.memory_bytes for m in news.devices_memory}
        if news.took is not None:
            row.took = msgspec.to_builtins(news.took)
        row.since = datetime.fromtimestamp(news.since, UTC) if news.since is not None else row.since
    row.observed_at = now
    row.save()
    return before != (row.observed, row.observed_incarnation, row.reason, row.pid, row.address, row.progress)
