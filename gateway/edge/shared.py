"""Answers that edges find of each other, through Redis: one bounded look, and keeping that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from typing import Any

import msgspec
import redis.asyncio as redis
from redis.exceptions import RedisError

from gateway.core.reuse.store import Entry
from gateway.core.usage import Usage

log = logging.getLogger(__name__)
PREFIX = "llmgw:answers:"
LOOK_S = 0.05
"""No request waits longer for Redis."""
REST_S = 2.0
"""After a look that came to nothing: nobody waits for a Redis that is away."""
_IN_THREAD_BYTES = 64 * 1024
_PUT = """
local now, ttl, size, most = tonumber(ARGV[2]), tonumber(ARGV[3]), string.len(ARGV[1]), tonumber(ARGV[4])
local index, total = KEYS[2], tonumber(redis.call('GET', KEYS[3]) or '0')
local function gone(member) total = total - tonumber(string.match(member, '^%d+')) end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 200)) do
  redis.call('ZREM', index, member)
  gone(member)
end
if size > most then return 0 end
while total + size > most do
  local first = redis.call('ZPOPMIN', index)
  if #first == 0 then total = 0 break end
  redis.call('DEL', string.match(first[1], ':(.*)$'))
  gone(first[1])
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ttl)
if redis.call('ZADD', index, now + ttl, size .. ':' .. KEYS[1]) == 1 then total = total + size end
redis.call('SET', KEYS[3], total)
return 1
"""
"""Those that would expire first make room."""


class _Value(msgspec.Struct, array_like=True):
    model: str
    kept_at: float
    prompt: int | None
    completion: int | None
    cached: int | None
    body: bytes


_decoder = msgspec.msgpack.Decoder(_Value)


class SharedAnswers:
    """Of all edges at one Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        self._put: Any = client.register_script(_PUT)
        self._rests_until = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, project: str, key: bytes) -> Entry | None:
        """Within `LOOK_S`; None as well where Redis does not answer."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            async with asyncio.timeout(LOOK_S):
                data: Any = await self._redis.get(_name(project, key))
        except (RedisError, OSError):
            self._rests_until = time.monotonic() + REST_S
            return None
        return _entry(project, data) if data else None

    def keep(self, key: bytes, entry: Entry, ttl_s: float, most_bytes: int) -> None:
        task = asyncio.get_running_loop().create_task(self._keep(key, entry, ttl_s, most_bytes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, key: bytes, entry: Entry, ttl_s: float, most_bytes: int) -> None:
        if time.monotonic() < self._rests_until:
            return
        if len(entry.body) > _IN_THREAD_BYTES:
            body = await asyncio.to_thread(zlib.compress, entry.body, 1)
        else:
            body = zlib.compress(entry.body, 1)
        counted = entry.usage
        value = _Value(entry.model, entry.kept_at, counted.prompt, counted.completion, counted.cached, body)
        keys = [_name(entry.project, key), f"{PREFIX}index", f"{PREFIX}bytes"]
        now_ms, ttl_ms = round(entry.kept_at * 1000), round(ttl_s * 1000)
        try:
            async with asyncio.timeout(2):
                await self._put(keys, [msgspec.msgpack.encode(value), now_ms, ttl_ms, most_bytes])
        except (RedisError, OSError):
            log.debug("an answer could not be shared")


def _name(project: str, key: bytes) -> str:
    return f"{PREFIX}{project}:{key.hex()}"


def _entry(project: str, data: bytes) -> Entry | None:
    """None for what another version wrote."""
    try:
        found = _decoder.decode(data)
        body = zlib.decompress(found.body)
    except (msgspec.MsgspecError, zlib.error):
        return None
    return Entry(project, found.model, body, found.kept_at, Usage(found.prompt, found.completion, found.cached))
