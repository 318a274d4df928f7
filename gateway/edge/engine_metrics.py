"""The engines' own word on their load, asked once a second beside the requests and never waited for by one."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from agent.engine import MetricNames
from agent.engines import ENGINES
from gateway.core import gauges
from gateway.core.load import Gauges
from gateway.edge.pool import Pool
from gateway.edge.replicas import Fleet, Replica
from gateway.edge.upstream import UpstreamError

log = logging.getLogger(__name__)
EACH_S = 1.0
WAIT_S = 0.8
"""For an answer: less than a round, so that one engine that hangs holds up nobody."""
SILENT_S = 30.0
"""Pause after an answer that is no metrics: this engine does not say."""
MISSES = 3
"""Rounds without an answer after which what was said is no longer known."""
MOST_BYTES = 4 * 1024 * 1024
_UNKNOWN = Gauges()


class EngineMetrics:
    """Asks the replicas of every model that has several, and an only one while half of its places are taken: before
    that there is nothing to choose and nobody to hold back."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._missed: dict[Replica, int] = {}
        self._not_before: dict[Replica, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self.round(began)
            await asyncio.sleep(max(0.05, EACH_S - (loop.time() - began)))

    async def round(self, now: float) -> None:
        """One question to each replica, all at once."""
        known = set(self._fleet)
        for kept in (self._missed, self._not_before):
            for gone in [replica for replica in kept if replica not in known]:
                del kept[gone]
        asked = []
        for replica in known:
            if not self._matters(replica):
                if replica.gauges != _UNKNOWN:
                    replica.told(_UNKNOWN)
            elif now >= self._not_before.get(replica, 0.0) and (names := _names(replica)) is not None:
                asked.append(self._ask(replica, names))
        if asked:
            await asyncio.gather(*asked)

    def _matters(self, replica: Replica) -> bool:
        busy = 2 * (replica.in_flight + replica.foreign) >= replica.parallel
        return busy or len(self._fleet.of(replica.endpoint.model)) > 1

    async def _ask(self, replica: Replica, names: MetricNames) -> None:
        text: bytes | None = None
        with contextlib.suppress(OSError, UpstreamError):
            async with asyncio.timeout(WAIT_S):
                text = await _fetch(replica, names.path)
        if text:
            self._missed.pop(replica, None)
            replica.told(gauges.read(text, names))
            return
        if text is not None:
            self._not_before[replica] = asyncio.get_running_loop().time() + SILENT_S
        missed = self._missed[replica] = self._missed.get(replica, 0) + 1
        if missed >= MISSES or text is not None:
            replica.told(_UNKNOWN)


def _names(replica: Replica) -> MetricNames | None:
    engine = ENGINES.get(replica.endpoint.engine)
    if engine is None:
        return None
    names = engine.metrics(None)
    return names if names.running or names.waiting or names.kv_cache_usage else None


async def _fetch(replica: Replica, path: str) -> bytes:
    """The text; empty where the answer is none. On a connection of its own: an engine that answers each connection with
    a thread must not lose one to us."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_S
    connection = await Pool(replica.endpoint.host, replica.endpoint.port).connect(WAIT_S)
    try:
        connection.send(f"GET {path} HTTP/1.1\r\n".encode() + replica.metrics_head + b"connection: close\r\n\r\n")
        if not await connection.head(deadline):
            raise TimeoutError
        if connection.status != 200:
            return b""
        pieces: list[bytes] = []
        size = 0
        while data := await connection.read(deadline):
            pieces.append(data)
            size += len(data)
            if size > MOST_BYTES:
                return b""
        if data is None:
            raise TimeoutError
        return b"".join(pieces)
    finally:
        connection.abort()  # also where the engine keeps it open although it was asked not to
