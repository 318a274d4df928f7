"""Publishing snapshot parts to Redis: at once after a commit, and every two seconds whatever was missed.

A version only grows. Two processes may publish at the same time: whoever read its rows before the other published is
sent back to read them again, so that no revoked key returns.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import redis

from gateway.control import ledger
from gateway.control.parts import BUILD, DEPENDS
from gateway.control.redis import client
from gateway.core import snapshot
from llmgw.cluster.changes import versions

log = logging.getLogger(__name__)
STAMPS = f"{snapshot.PREFIX}stamps"
"""A hash of part → `version digest` of its content."""
_TRIES = 5

# Only if nobody published since the rows were read: a stamp is read before them.
_SWAP = """
local had = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if had ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[5])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
redis.call('PUBLISH', ARGV[6], ARGV[1])
return 1
"""


def publish(names: Iterable[str] = snapshot.PARTS) -> list[str]:
    """The parts among `names` whose content changed, published; raises `redis.RedisError`."""
    return [name for name in names if _part(name)]


def publish_quietly(*names: str) -> None:
    """After a commit: a Redis that is away must not hide that the change is done."""
    try:
        publish(names)
    except (redis.RedisError, OSError) as e:
        log.warning("%s could not be published now (%s); the task does it", ", ".join(names), type(e).__name__)


def _part(name: str) -> bool:
    for _ in range(_TRIES):
        had = _text(client().hget(STAMPS, name))
        known, _, digest = had.partition(" ")
        part = BUILD[name]()
        if isinstance(part, snapshot.Tenancy):
            ledger.seed_quietly(part)  # before an edge hears of a budget, what is spent of it is known
        now = hashlib.sha256(snapshot.encode(part)).hexdigest()[:32]
        if digest == now and client().exists(snapshot.PREFIX + name):
            return False
        version = max(int(known or 0) + 1, _changes(name))  # a Redis that lost everything must not count from 1
        data = snapshot.encode(replace(part, version=version))
        keys = (snapshot.PREFIX + name, STAMPS, snapshot.VERSIONS)
        stamp = f"{version} {now}"
        if client().eval(_SWAP, len(keys), *keys, name, had, stamp, version, data, snapshot.CHANNEL):
            return True
    log.warning("%s was published by others %d times in a row", name, _TRIES)
    return False


def _changes(name: str) -> int:
    found = versions()
    return sum(found.get(change, 0) for change in DEPENDS[name])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else ""
