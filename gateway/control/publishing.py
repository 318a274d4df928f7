"""Publishing snapshot parts to Redis: at once after a commit, and every two seconds whatever was missed.

A version only grows. Two processes may publish at the same time: the one that read older rows is refused, so that
no revoked key comes back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace

import redis

from gateway.control.parts import BUILD, DEPENDS
from gateway.control.redis import client
from gateway.core import snapshot
from llmgw.cluster.changes import versions

log = logging.getLogger(__name__)
STAMPS = f"{snapshot.PREFIX}stamps"
"""A hash of part → `base digest`: from which change the rows were read, and what came out."""
_TRIES = 5

# Only if nobody published in between, and nobody read newer rows.
_SWAP = """
local had = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if had ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[5])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
redis.call('PUBLISH', ARGV[6], ARGV[1])
return 1
"""


def publish(names: Iterable[str] = snapshot.PARTS, *, steady: bool = False) -> list[str]:
    """The parts among `names` whose content changed, published; raises `redis.RedisError`.

    `steady`: the caller comes by all the time and nothing else runs at once from a newer commit that it could
    not see; it may therefore replace what claims to be newer than the store, which was restored from a copy.
    """
    return [name for name in names if _part(name, steady)]


def publish_quietly(*names: str) -> None:
    """After a commit: a Redis that is away must not hide that the change is done."""
    try:
        publish(names)
    except (redis.RedisError, OSError) as e:
        log.warning("%s could not be published now (%s); the task does it", ", ".join(names), type(e).__name__)


def _part(name: str, steady: bool) -> bool:
    for _ in range(_TRIES):
        had = client().hget(STAMPS, name)
        stamp = (had or b"").decode()  # type: ignore[union-attr]
        base = _base(name)
        known, _, digest = stamp.partition(" ")
        if known and int(known) > base and not steady:
            return False  # somebody read newer rows
        part = BUILD[name]()
        now = hashlib.sha256(snapshot.encode(part)).hexdigest()[:32]
        if digest == now and client().exists(snapshot.PREFIX + name):
            return False
        version = max(int(client().hget(snapshot.VERSIONS, name) or 0) + 1, base)  # type: ignore[arg-type]
        data = snapshot.encode(replace(part, version=version))
        keys = (snapshot.PREFIX + name, STAMPS, snapshot.VERSIONS)
        if client().eval(_SWAP, len(keys), *keys, name, stamp, f"{base} {now}", version, data, snapshot.CHANNEL):
            return True
    log.warning("%s was published by others %d times in a row", name, _TRIES)
    return False


def _base(name: str) -> int:
    found = versions()
    return sum(found.get(change, 0) for change in DEPENDS[name])
