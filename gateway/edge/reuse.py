"""The answer cache on the inference path: a look before dispatch, and keeping what was answered after it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.core import usage
from gateway.core.reuse import asked as asking
from gateway.core.reuse import rules, telling
from gateway.core.reuse.joining import Joined
from gateway.core.reuse.store import Entry, Store
from gateway.core.snapshot import Policies, Reuse
from gateway.edge.capture import Capture
from gateway.edge.client import Headers
from gateway.edge.figures import EdgeFigures
from gateway.edge.waits import STREAM_HEADERS
from llmgw import price

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange

log = logging.getLogger(__name__)
STREAM_TIMES = 24
"""A stream's events are at most so many times larger than the answer that they make."""
AT_ONCE_BLOCKS = 64
"""A longer stream is put together in the pauses of the loop: other streams go on meanwhile."""
_JSON: Headers = [(b"content-type", b"application/json")]


class Answers:
    """What this process holds. `reuse_of`: what a project says now."""

    def __init__(self, figures: EdgeFigures, reuse_of: Callable[[str], Reuse | None]) -> None:
        self.figures, self._reuse_of = figures, reuse_of
        self.policy = Policies().cache
        self.store = Store(self.policy.max_bytes)
        self._joining: set[asyncio.Task[None]] = set()

    def changed(self, policies: Policies) -> None:
        self.policy = policies.cache
        self.store.limit(self.policy.max_bytes)

    def sweep(self, now: float) -> None:
        """Once a second."""
        self.store.sweep(self._reuse_of, now)

    def look(self, exchange: Exchange) -> Look | None:
        """None where the project does not reuse answers."""
        who, entry, client = exchange.who, exchange.entry, exchange.client
        assert who is not None
        assert entry is not None
        reuse = who.scope.reuse
        if reuse is None:
            return None
        asked = asking.read(exchange.endpoint, exchange.raw, who.scope.project, entry.name)
        said = client.header(b"cache-control"), client.header(b"x-llmgw-cache")
        found = Look(self, exchange, reuse, asked if rules.verdict(who.scope, asked, *said) == "look" else None)
        exchange.headers.append((b"x-llmgw-cache", found.result.encode()))
        return found

    def keep(self, key: bytes, entry: Entry) -> None:
        self.store.put(key, entry)

    def in_pauses(self, work: asyncio.Task[None]) -> None:
        self._joining.add(work)
        work.add_done_callback(self._joining.discard)


class Look:
    """One request's dealings with the cache. `asked` None: it is asked anew, and not kept."""

    def __init__(self, answers: Answers, exchange: Exchange, reuse: Reuse, asked: asking.Asked | None) -> None:
        self._answers, self._exchange, self._reuse, self.asked = answers, exchange, reuse, asked
        self.result = rules.BYPASS if asked is None else rules.MISS
        self.saved: Entry | None = None
        self._held: Entry | None = None
        if asked is not None:
            times = STREAM_TIMES if exchange.request is not None and exchange.request.stream else 1
            exchange.capture = Capture(answers.policy.max_entry_bytes * times)

    @property
    def project(self) -> str:
        assert self._exchange.who is not None
        return self._exchange.who.scope.project

    @property
    def model(self) -> str:
        assert self._exchange.entry is not None
        return self._exchange.entry.name

    def saving(self) -> tuple[int, int]:
        """The tokens that the answer counted when it was given, and what they would cost now in nano-units."""
        if self.saved is None:
            return 0, 0
        assert self._exchange.entry is not None
        counted = self.saved.usage
        prompt, completion = counted.prompt or 0, counted.completion or 0
        known = price.at(self._exchange.entry.prices, self._exchange.at)
        known = known or self._exchange.edge.snapshots.current.policies.default_price
        return prompt + completion, known.of(prompt, completion, counted.cached or 0)

    def held(self) -> bool:
        """Whether the answer is held: the request then needs no engine, no tokens and no money."""
        if self.asked is not None:
            self._held = self._answers.store.get(self.asked.key, self._reuse, time.time())
        return self._held is not None

    async def answered(self) -> bool:
        """Whether the client has its answer, from what is held."""
        if self._held is None:
            return False
        await self._tell(self._held, time.time(), rules.HIT)
        return True

    async def _tell(self, entry: Entry, now: float, result: str) -> None:
        """In the form that was asked for, as an answer of its own."""
        exchange = self._exchange
        request = exchange.request
        assert request is not None
        self.result, self.saved = result, entry
        exchange.capture = None
        exchange.tally.usage = usage.Usage(0, 0, 0)
        headers = [h for h in exchange.headers if h[0] != b"x-llmgw-cache"]
        headers += [(b"x-llmgw-cache", result.encode()), (b"age", b"%d" % max(0, now - entry.kept_at))]
        exchange.headers = headers
        if request.stream:
            body = telling.stream(exchange.endpoint, entry.body, request.wants_usage)
            await exchange.client.open(200, [*STREAM_HEADERS, *headers])
            await exchange.client.close(body)
        else:
            await exchange.client.whole(200, [*_JSON, *headers], entry.body)

    def keep(self, served: str) -> None:
        """The client has its whole answer from the model `served`."""
        exchange = self._exchange
        capture, request = exchange.capture, exchange.request
        if self.asked is None or capture is None or capture.over or served != self.asked.model or request is None:
            return
        if not request.stream:
            self._keep(b"".join(capture.blocks))
        elif len(capture.blocks) <= AT_ONCE_BLOCKS:
            joined = Joined(exchange.endpoint)
            try:
                for block in capture.blocks:
                    joined.feed(block)
            except ValueError:
                return
            self._keep(joined.body(exchange.tally.counts))
        else:
            self._answers.in_pauses(exchange.loop.create_task(self._join(capture.blocks)))

    async def _join(self, blocks: list[bytes]) -> None:
        joined = Joined(self._exchange.endpoint)
        try:
            for i, block in enumerate(blocks, 1):
                joined.feed(block)
                if i % AT_ONCE_BLOCKS == 0:
                    await asyncio.sleep(0)
        except ValueError:
            return
        self._keep(joined.body(self._exchange.tally.counts))

    def _keep(self, body: bytes | None) -> None:
        answers, asked, exchange = self._answers, self.asked, self._exchange
        if body is None or asked is None or len(body) > answers.policy.max_entry_bytes:
            return
        if not rules.whole(exchange.endpoint, body):
            return
        counted = exchange.tally.usage or usage.Usage()
        answers.keep(asked.key, Entry(asked.project, asked.model, body, time.time(), counted))
