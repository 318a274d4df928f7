"""What connected nodes said last of themselves, put into Redis every two seconds for the exporter and for pages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec
import redis.asyncio
import redis.exceptions

from agent.wire.facts import NodeFacts
from agent.wire.messages import Heartbeat
from llmgw import node_figures
from llmgw.node_figures import Told

log = logging.getLogger(__name__)
EVERY_S = 2.0
_MOST = 200
"""Nodes in one command."""


class Figures:
    """Used from the event loop alone."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._told: dict[str, Told] = {}
        self._fresh: set[str] = set()
        self._gone: set[str] = set()

    def report(self, node_id: str, facts: NodeFacts) -> None:
        before = self._told.get(node_id)
        told = node_figures.reported(facts, self._wall())
        if before is not None:  # heartbeats told these, and the report looks at the cards at other moments
            told = msgspec.structs.replace(told, load_1m=before.load_1m, gpus=before.gpus)
        self._put(node_id, told)

    def heartbeat(self, node_id: str, message: Heartbeat) -> None:
        before = self._told.get(node_id)
        if before is None:
            return
        before.at = self._wall()
        before.memory_free_bytes = message.memory_free_bytes
        before.disk_free_bytes = message.disk_free_bytes
        before.load_1m = message.load_1m
        before.gpus = message.gpus or ()
        self._fresh.add(node_id)

    def gone(self, node_id: str) -> None:
        if self._told.pop(node_id, None) is not None:
            self._fresh.discard(node_id)
            self._gone.add(node_id)

    async def run(self, url: str) -> None:
        """For ever. Without Redis figures are absent, and nothing else happens."""
        while True:
            try:
                async with redis.asyncio.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2) as client:
                    while True:
                        await asyncio.sleep(EVERY_S)
                        await self.put(client)
            except (redis.exceptions.RedisError, OSError) as e:
                log.debug("figures of nodes are not told for a moment: %s", e)
                await asyncio.sleep(EVERY_S)

    async def put(self, client: redis.asyncio.Redis) -> None:
        """What is new since the last time."""
        fresh, gone = sorted(self._fresh), sorted(self._gone)
        self._fresh.clear()
        self._gone.clear()
        for start in range(0, len(fresh), _MOST):
            some = [n for n in fresh[start : start + _MOST] if n in self._told]
            if some:
                pairs = [part for n in some for part in (n, node_figures.encode(self._told[n]))]
                await client.execute_command("HSET", node_figures.KEY, *pairs)  # type: ignore[no-untyped-call]
        if gone:
            await client.execute_command("HDEL", node_figures.KEY, *gone)  # type: ignore[no-untyped-call]

    def _put(self, node_id: str, told: Told) -> None:
        self._told[node_id] = told
        self._fresh.add(node_id)
        self._gone.discard(node_id)
