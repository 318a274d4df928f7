"""The ledger from the control side: what was spent before Redis knew, and what it says now.

A budget that a Redis has never heard of (a new one, or an emptied Redis) is seeded with the sum of the usage rows in
the running period, less what edges have settled there since and is in rows too. Until then edges treat it as one that
cannot be asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import redis
from django.db import DatabaseError
from django.db.models import Sum

from gateway.control import parts
from gateway.control.ingesting import ingest
from gateway.control.redis import client
from gateway.control.rollups import NAMES, Identity, bucket, grain_s
from gateway.core import snapshot
from gateway.core.ledger import account, keys
from gateway.core.snapshot import LevelLimits, Tenancy
from gateway.models import Usage, UsageHour

log = logging.getLogger(__name__)
SEEDED = f"{keys.ROOT}seeded"
"""The version of the tenancy whose budgets are all seeded. It runs out, and an emptied Redis has none."""
AGAIN_S = 600
AHEAD_S = 2 * AGAIN_S
"""So long before a period begins its budgets are seeded: at midnight nobody waits for that."""
KEEP_S = 40 * 86_400
"""After its end, what was spent in a period is forgotten here; the rows have it."""

_AT_ONCE = 500

# ARGV: what the rows say more than is counted, now, when it may be forgotten (0: never). 1 where it was not seeded.
_SEED = """
if redis.call('HEXISTS', KEYS[1], 'k') == 1 then return 0 end
redis.call('HINCRBY', KEYS[1], 's', ARGV[1])
redis.call('HSET', KEYS[1], 'k', ARGV[2])
redis.call('DEL', KEYS[2])
if ARGV[3] ~= '0' then redis.call('EXPIREAT', KEYS[1], ARGV[3]) end
return 1
"""


@dataclass(frozen=True, slots=True)
class Money:
    """Nano-units, of a budget in its running period."""

    spent: int
    held: int


def budgets(tenancy: Tenancy) -> list[LevelLimits]:
    """Every level and key that has one, once."""
    levels = [level for scope in tenancy.projects.values() for level in scope.limits]
    levels += [key.limits for key in tenancy.keys.values() if key.limits is not None]
    return list({(one.level, one.id): one for one in levels if one.limits.budget is not None}.values())


def spent(levels: Iterable[LevelLimits]) -> dict[tuple[str, str], Money | None]:
    """By level and id; None where Redis does not know yet. Raises `redis.RedisError`."""
    asked = list(levels)
    with client().pipeline(transaction=False) as pipe:
        for one in asked:
            pipe.hmget(_purse(one), "s", "h", "k")
        answers = pipe.execute()
    return {
        (one.level, one.id): Money(int(s or 0), int(h or 0)) if k is not None else None
        for one, (s, h, k) in zip(asked, answers, strict=True)
    }


def seed(levels: Iterable[LevelLimits]) -> int:
    """Those that are not yet; how many they were. Raises `redis.RedisError`."""
    known = spent(levels := list(levels))
    return sum(_seed(one) for one in levels if known[one.level, one.id] is None)


def seed_quietly(tenancy: Tenancy) -> None:
    """Before it is published. What fails here, `watch` makes up for."""
    try:
        seed(budgets(tenancy))
    except (redis.RedisError, OSError, DatabaseError) as e:
        log.warning("budgets could not be seeded (%s): the task does it", type(e).__name__)


def watch(spool: Path) -> None:
    """Every two seconds: whether a Redis has lost what was spent, and whether a period is about to begin. Raises
    `redis.RedisError`."""
    version, seeded = client().hget(snapshot.VERSIONS, "tenancy"), client().get(SEEDED)
    if version is None or version == seeded:
        return
    ingest(spool)  # what edges have settled belongs into the sums
    now = time.time()
    found = seed(budgets(parts.tenancy(now))) + seed(budgets(parts.tenancy(now + AHEAD_S)))
    if found:
        log.info("%d budgets were seeded from the usage rows", found)
    client().set(SEEDED, version, ex=AGAIN_S)


def from_rows(level: LevelLimits) -> int:
    """What the rows say was spent in its running period: whole hours by their sums, the rest of the first by rows."""
    whose = {level.level: level.id}
    begins, grain = datetime.fromtimestamp(level.since, UTC), grain_s()
    first = bucket(begins, grain)
    total = 0
    if first < begins:
        first += timedelta(seconds=grain)
        rows = Usage.objects.filter(at__gte=begins, at__lt=first, **whose)
        total = rows.aggregate(n=Sum("cost"))["n"] or 0
    return total + (UsageHour.objects.filter(at__gte=first, **whose).aggregate(n=Sum("cost"))["n"] or 0)


def corrected(deltas: Mapping[Identity, int]) -> None:
    """Corrections (nano-units, by the bucket that they are about) of what was spent in periods that are running. An
    emptied Redis is seeded from the sums, which have them already."""
    for level in budgets(parts.tenancy(time.time())):
        place = NAMES.index(level.level)
        delta = sum(d for i, d in deltas.items() if i[place] == level.id and i[0].timestamp() >= level.since)
        try:
            if delta and client().hexists(_purse(level), "k"):
                client().hincrby(_purse(level), "s", delta)
        except redis.RedisError as e:
            log.warning("a correction did not reach the ledger (%s): see llmgw ledger verify", type(e).__name__)


def _seed(level: LevelLimits) -> int:
    name = account.name(level.level, level.id)
    purse, unseeded = _purse(level), keys.unseeded(name, level.period)
    settled = (i.decode() if isinstance(i, bytes) else i for i in client().smembers(unseeded))
    ids = list({i.rstrip("+") for i in settled})  # what another model answered in the end has a plus for each before it
    # In this order: what is counted twice by what comes in between is too much, never too little.
    counted = 0
    for i in range(0, len(ids), _AT_ONCE):
        rows = Usage.objects.filter(request_id__in=ids[i : i + _AT_ONCE])
        counted += rows.aggregate(n=Sum("cost"))["n"] or 0
    more = from_rows(level) - counted
    forget = int(level.until + KEEP_S) if level.until else 0
    return int(client().eval(_SEED, 2, purse, unseeded, more, int(time.time()), forget))


def _purse(level: LevelLimits) -> str:
    return keys.purse(account.name(level.level, level.id), level.period)
