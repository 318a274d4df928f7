"""Who asks for which model here, for the control side: it starts what loads on demand, and stops what nobody asks for.

Counting costs a request for such a model a few assignments; the word goes out with the live figures each second, and
at once when the first request finds a model not running.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import redis.asyncio as redis
from redis.exceptions import RedisError

from gateway.core.snapshot import ModelEntry
from llmgw import demand

if TYPE_CHECKING:
    from gateway.edge.app import Edge

log = logging.getLogger(__name__)
COMING = frozenset({"idle", "starting", "loading", "waiting", "serving"})
"""States of a model that loads on demand in which a request waits for it; `serving` without a replica is a moment's."""
HOLDS_S = 60.0
"""As long an ask stands that was refused, beyond the time that its client was told: it may come back."""
FORGET_S = 3600.0
"""After its last request a model is left out of the word: the control side has written that down long ago."""


class _Asked:
    __slots__ = ("at", "since", "until")

    def __init__(self, at: float) -> None:
        self.at = at
        self.since: float | None = None
        self.until = 0.0


class Demands:
    """Of one edge; times are monotonic."""

    def __init__(self, edge: Edge, client: redis.Redis) -> None:
        self._edge, self._redis = edge, client
        self._asked: dict[str, _Asked] = {}
        self._telling: asyncio.Task[None] | None = None
        self._quiet: frozenset[str] = frozenset()
        self.key = demand.KEY + edge.id

    def comes(self, entry: ModelEntry) -> bool:
        """Whether it does not run and starts for whoever asks: its requests wait for it."""
        return entry.on_demand and entry.state in COMING and not self._runs(entry.name)

    def ask(self, entry: ModelEntry) -> None:
        """Somebody who may use it asks for a model that loads on demand."""
        now = time.monotonic()
        asked = self._asked.get(entry.name)
        if asked is None:
            asked = self._asked[entry.name] = _Asked(now)
        asked.at = now
        if self._runs(entry.name):
            return
        asked.until = max(asked.until, now + HOLDS_S)
        if asked.since is None:
            asked.since = now
            self._tell_now()

    def told(self, model: str, retry_after_s: float) -> None:
        """A request was refused, and may come back then."""
        asked = self._asked.get(model)
        if asked is not None:
            asked.until = max(asked.until, time.monotonic() + retry_after_s + HOLDS_S)

    def left(self) -> None:
        """Replicas have changed: where one takes no more, somebody may wait for its card."""
        if self._leaving():
            self._tell_now()

    def news(self) -> bool:
        """Whether a replica that takes no more has answered its last since this was asked before."""
        before, self._quiet = self._quiet, frozenset(r for r, n in self._leaving().items() if not n)
        return bool(self._quiet - before)

    def word(self) -> bytes:
        """What this edge says now."""
        now, edge = time.monotonic(), self._edge
        word: dict[str, demand.Asked] = {}
        for name in {*edge.live.models, *self._asked}:
            live, asked = edge.live.models.get(name), self._asked.get(name)
            waiting = edge.doors.waiting(name)
            in_flight = max(0, live.in_flight - waiting) if live is not None else 0
            if asked is not None:
                self._age(name, asked, now, used=bool(waiting or in_flight))
            if waiting or in_flight or asked is not None:
                since, at = (asked.since, asked.at) if asked is not None else (None, None)
                word[name] = demand.Asked(waiting, in_flight, _ago(now, since), _ago(now, at))
        for name in [n for n, asked in self._asked.items() if now - asked.at > FORGET_S]:
            del self._asked[name]
        return demand.encode(demand.Word(word, self._leaving()))

    def _age(self, name: str, asked: _Asked, now: float, used: bool) -> None:
        if used:
            asked.at = now  # a long answer is in use to its end
        if self._runs(name) or (now > asked.until and not used):
            asked.since = None

    def _leaving(self) -> dict[str, int]:
        return {replica.name: replica.in_flight for replica in self._edge.fleet if replica.draining}

    def _runs(self, model: str) -> bool:
        return any(not replica.draining for replica in self._edge.fleet.of(model))

    def _tell_now(self) -> None:
        if self._telling is None or self._telling.done():
            self._telling = self._edge.loop.create_task(self._tell())

    async def _tell(self) -> None:
        """The word and its announcement; a Redis that is away costs the second until the next one."""
        await asyncio.sleep(0)  # whoever asks stands in its queue by then
        try:
            async with asyncio.timeout(2), self._redis.pipeline(transaction=False) as pipe:
                pipe.set(self.key, self.word(), ex=demand.EXPIRES_S)
                pipe.publish(demand.CHANNEL, self._edge.id)
                await pipe.execute()
        except (RedisError, OSError):
            log.debug("demand could not be told at once")


def _ago(now: float, at: float | None) -> float | None:
    return None if at is None else round(max(0.0, now - at), 2)
