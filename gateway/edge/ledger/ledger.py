"""The edge's side of the ledger in Redis: operations of one turn of the loop leave as one script call, in order.

Each batch names the one before it, and the script applies none out of order: what a restarted or promoted Redis has
lost is found by its last number, and sent again from what the edge still knows of the last seconds. So every
reservation and settlement counts once, whatever breaks in between (docs/ledger.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any

from gateway.core.ledger.keys import LEASE_S
from gateway.edge.ledger import operation
from gateway.edge.ledger.operation import RESERVE, Batch, Operation, Result
from gateway.edge.ledger.wire import Wire, WireError, connect
from llmgw import metrics, series

log = logging.getLogger(__name__)
TICK_S = 0.05
ANSWER_S = 0.5
"""What waits longer is decided without the ledger."""
BROKEN_S = 2.0
"""A connection on which nothing is answered for so long is given up."""
RENEW_S = LEASE_S / 4
SETTLE_S = 0.002
"""A settlement waits so long for a reservation to leave with, before it: together they cost little more than one."""
JOURNAL_S = 5.0
"""How long an answered batch is remembered: longer than a Redis that syncs each second can lose, or a replica lag."""
RETRY_S, MOST_RETRY_S = 0.1, 0.5
_FOLDER = resources.files("gateway.edge.ledger")
BATCH = (_FOLDER / "batch.lua").read_bytes()
HELLO = (_FOLDER / "hello.lua").read_bytes()


class Ledger:
    """`run` until cancelled; `reserve` and `settle` from anywhere in the loop."""

    def __init__(self, redis_url: str, edge_id: str, figures: metrics.Figures) -> None:
        self._url, self._edge, self._figures = redis_url, edge_id, figures
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # from `run`
        self.window_ms = 60_000
        self.away_since: float | None = 0.0
        """The loop's time since when Redis does not answer; None: it does."""
        self.live: dict[str, bytes] = {}
        """Reservations that are held: id → record."""
        self._wire: Wire | None = None
        self._lost = asyncio.Event()
        self._sha = b""
        self._epoch = self._number = 0
        self._previous = b"0"
        self._queue: list[Operation] = []
        self._scheduled = self._settling = False
        self._sent: deque[Batch] = deque()
        self._journal: deque[Batch] = deque()
        self._sent_at = 0.0

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.away_since = self._loop.time()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connected())
            group.create_task(self._tick())

    @property
    def away(self) -> bool:
        """For so long that nobody should wait for it."""
        return self.away_since is not None and self._loop.time() - self.away_since > ANSWER_S

    async def reserve(self, id: str, records: Sequence[bytes]) -> Result | None:
        """The first of `records` that fits, or why none does; None where the ledger does not answer."""
        if self.away:
            return None
        future: asyncio.Future[Result | None] = self._loop.create_future()
        found = operation.reserve(id, records, self._loop.time(), future)
        self._put(found)
        try:
            result = await future
        except asyncio.CancelledError:
            self._put(operation.drop(id))
            raise
        if result is None:
            self._put(operation.drop(id))  # it may have been decided since
        elif found.admitted is not None:
            self.live[id] = found.admitted
        return result

    def force(self, id: str, record: bytes) -> None:
        """It was admitted without asking: hold it from now, or from when Redis is back."""
        self.live[id] = record
        self._put(operation.force(id, record))

    def settle(self, id: str, record: bytes, tokens: int, money: int, ms: int) -> None:
        """Let go of what is held; `tokens` and `money` stay. Nobody waits for it."""
        if self.live.pop(id, None) is not None:
            self._queue.append(operation.settle(id, record, tokens, money, ms))
            if not self._settling and self._wire is not None:
                self._settling = True
                self._loop.call_later(SETTLE_S, self._settled)

    async def close(self) -> None:
        """After the last request: what is still to be told goes out, if Redis takes it. Once, so nothing signals it."""
        deadline = self._loop.time() + 1.0
        while self._wire is not None and (self._queue or self._sent) and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    # -- batches

    def _put(self, found: Operation) -> None:
        self._queue.append(found)
        if not self._scheduled and self._wire is not None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _settled(self) -> None:
        self._settling = False
        self._flush()

    def _flush(self) -> None:
        self._scheduled = False
        if self._queue and self._wire is not None:
            queue, self._queue = self._queue, []
            self._send(queue)

    def _send(self, operations: list[Operation], look: bool = False) -> None:
        assert self._wire is not None
        self._number += 1
        now, number = self._loop.time(), b"%d" % self._number
        batch = Batch(self._number, operations, now)
        self._sent.append(batch)
        self._sent_at = now
        previous, self._previous = self._previous, number
        words = [word for found in operations for word in found.words]
        times = (b"0", b"%d" % self.window_ms, _LEASE_MS)
        head = (b"EVALSHA", self._sha, b"0", self._edge, b"%d" % self._epoch, previous, number)
        self._wire.send(partial(self._answered, self._wire, batch), *head, *times, b"1" if look else b"0", *words)

    def _answered(self, wire: Wire, batch: Batch, reply: Any) -> None:
        if wire is not self._wire:  # what became of it is asked when the next connection says hello
            return
        if isinstance(reply, Exception) or reply[0] != b"ok":
            log.warning("the ledger did not take a batch (%s): asking what it knows", _said(reply))
            self._drop_wire()
            return
        self._sent.popleft()
        self.away_since = None
        now, results = self._loop.time(), iter(reply[2:])
        for found in batch.operations:
            if found.words[0] == RESERVE:
                found.answer(next(results))
        self._figures.observe(series.LEDGER_SECONDS, now - batch.at)
        if batch.operations:
            batch.at = now
            self._journal.append(batch)
        while self._journal and self._journal[0].at < now - JOURNAL_S:
            self._journal.popleft()
        if reply[1]:
            log.warning("the ledger had forgotten this edge: telling it again what is held")
            self._drop_wire()

    # -- the connection

    def _drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        self._lost.set()

    def _gone(self, wire: Wire) -> None:
        if wire is self._wire:
            self._wire = None
            self._lost.set()

    async def _connected(self) -> None:
        said, pause_s = False, RETRY_S
        try:
            while True:
                self._lost.clear()
                try:
                    await self._connect()
                except (OSError, TimeoutError, WireError) as e:
                    if not said:
                        log.warning("the ledger is away (%s)", e or type(e).__name__)
                    said = True
                else:
                    if said:
                        log.warning("the ledger is back")
                    said = False
                    await self._lost.wait()
                if self.away_since is None:
                    self.away_since, pause_s = self._loop.time(), RETRY_S
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_RETRY_S)  # one that takes no writes is not asked all the time
        finally:
            self._drop_wire()

    async def _connect(self) -> None:
        wire = await connect(self._url, self._gone)
        try:
            async with asyncio.timeout(BROKEN_S):
                self._epoch += 1
                self._sha = await wire.ask("SCRIPT", "LOAD", BATCH)
                last, *ids = await wire.ask("EVAL", HELLO, 0, self._edge, self._epoch, 0)
        except BaseException:
            wire.close()
            raise
        if not wire.usable:
            raise ConnectionError("Redis hung up")
        self._wire = wire
        self._recover(int(last), {i.decode() for i in ids})

    def _recover(self, last: int, held: set[str]) -> None:
        """Bring a server that knows our batches up to `last`, and holds the reservations `held`, to what is true."""
        lost = [b for b in self._journal if b.number > last]
        self._journal = deque(b for b in self._journal if b.number <= last)
        again = [o for batch in lost for found in batch.operations if (o := found.again()) is not None]
        pending: list[Operation] = []
        for batch in self._sent:
            for found in batch.operations:
                if batch.number > last:
                    pending.append(found)
                elif found.words[0] == RESERVE:  # decided, but by which record and with what left is not known
                    pending += [operation.drop(found.id), found]
        self._sent.clear()
        pending = [o for o in [*pending, *self._queue] if o.words[0] != RESERVE or o.open]
        told = {o.id for o in (*again, *pending)}
        missing = [operation.force(i, r) for i, r in self.live.items() if i not in held and i not in told]
        strange = [operation.drop(i) for i in held if i not in self.live and i not in told]
        self._previous = b"%d" % last
        self._queue = [*again, *missing, *strange, *pending]
        self._send([], look=True)
        self._flush()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._loop.time()
            self._time_out(now)
            if self._wire is None:
                continue
            if self._sent and self._sent[0].at < now - BROKEN_S:
                self._drop_wire()
            elif self._sent_at < now - RENEW_S:
                self._send([], look=True)

    def _time_out(self, now: float) -> None:
        for operations in (*(b.operations for b in self._sent), self._queue):
            for found in operations:
                if found.open and found.at < now - ANSWER_S:
                    assert found.future is not None
                    found.future.set_result(None)


def _said(reply: Any) -> str:
    return str(reply)[:200] if isinstance(reply, Exception) else str(reply[0])


_LEASE_MS = b"%d" % int(LEASE_S * 1000)
