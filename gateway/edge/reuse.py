"""The answer cache on the inference path: a look before dispatch, and keeping what was answered after it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import msgspec

from gateway.core import sse, usage
from gateway.core.request import EMBEDDINGS
from gateway.core.reuse import asked as asking
from gateway.core.reuse import rules, similar, telling
from gateway.core.reuse.joining import Joined
from gateway.core.reuse.similar import Index, Question, Vector
from gateway.core.reuse.store import Entry, Store
from gateway.core.snapshot import Policies, Reuse
from gateway.edge import own
from gateway.edge.capture import Capture
from gateway.edge.client import Headers, watched
from gateway.edge.shared import SharedAnswers
from gateway.edge.waits import STREAM_HEADERS

if TYPE_CHECKING:
    from gateway.edge.app import Edge
    from gateway.edge.exchange import Exchange

log = logging.getLogger(__name__)
STREAM_TIMES = 24
"""A stream's events are at most so many times larger than the answer that they make."""
AT_ONCE_BYTES = 32 * 1024
"""A longer stream (of some 200 chunks) is put together in the pauses of the loop: other streams go on meanwhile."""
_EVENTS_A_PAUSE = 64
EMBED_S = 2.0
_JSON: Headers = [(b"content-type", b"application/json")]


class _Embedding(msgspec.Struct):
    embedding: list[float]


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]


_embedding = msgspec.json.Decoder(_Embeddings)


class Answers:
    """What this process holds."""

    def __init__(self, edge: Edge, shared: SharedAnswers) -> None:
        self._edge = edge
        self.policy = Policies().cache
        self.questions = Index()
        self.store = Store(self.policy.max_bytes, self.questions.drop)
        self.shared = shared
        self._joining: set[asyncio.Task[None]] = set()

    def changed(self, policies: Policies) -> None:
        self.policy = policies.cache
        self.store.limit(self.policy.max_bytes)

    def sweep(self, now: float) -> None:
        """Once a second."""
        self.store.sweep(self._reuse_of, now)

    def _reuse_of(self, project: str) -> Reuse | None:
        """What a project says now."""
        scope = self._edge.snapshots.current.tenancy.projects.get(project)
        return scope.reuse if scope is not None and not scope.no_store else None

    def look(self, exchange: Exchange) -> Look | None:
        """None where the project does not reuse answers."""
        who, entry, client = exchange.who, exchange.entry, exchange.client
        assert who is not None
        assert entry is not None
        reuse = who.scope.reuse
        if reuse is None or who.replay is not None:
            return None
        asked = asking.read(exchange.endpoint, exchange.raw, who.scope.project, entry.name)
        said = client.header(b"cache-control"), client.header(b"x-llmgw-cache")
        found = Look(self, exchange, reuse, asked if rules.verdict(who.scope, asked, *said) == "look" else None)
        exchange.headers.append((b"x-llmgw-cache", found.result.encode()))
        return found

    async def embedded(self, text: str) -> Vector | None:
        """What the embedding model makes of `text`; None where it does not say within `EMBED_S`."""
        model = self._edge.model(self.policy.embedding_model)
        if model is None:
            return None
        body = msgspec.json.encode({"model": model.origin or model.name, "input": text, "encoding_format": "float"})
        answer = await own.ask(self._edge, model.name, EMBEDDINGS, body, EMBED_S)
        try:
            return similar.vector(_embedding.decode(answer).data[0].embedding) if answer else None
        except (msgspec.MsgspecError, IndexError):
            return None

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
        self._question: Question | None = None
        self._vector: Vector | None = None
        if asked is not None:
            times = STREAM_TIMES if exchange.request is not None and exchange.request.stream else 1
            exchange.capture = Capture(answers.policy.max_entry_bytes * times)

    async def held(self) -> bool:
        """Whether the answer is held: the request then needs no engine, no tokens and no money."""
        if self.asked is not None:
            self._held = self._answers.store.get(self.asked.key, self._reuse, time.time())
            if self._held is None and self._answers.policy.shared:
                self._held = await self._of_another_edge(self.asked)
        return self._held is not None

    async def answered(self) -> bool:
        """Whether the client has its answer: what is held, or what was answered to a question like this one."""
        if self._held is not None:
            await self._tell(self._held, rules.HIT)
            return True
        if self.asked is None or self._reuse.similar is None:
            return False
        return await self._alike(self.asked, self._reuse.similar)

    async def _of_another_edge(self, asked: asking.Asked) -> Entry | None:
        entry = await self._answers.shared.get(asked.project, asked.key)
        if entry is None or not entry.fresh(self._reuse, time.time()):
            return None
        self._answers.store.put(asked.key, entry)
        return entry

    async def _alike(self, asked: asking.Asked, least: float) -> bool:
        """The same with the answer to a question like this one."""
        answers = self._answers
        model = answers.policy.embedding_model
        self._question = similar.question(asked, model) if model else None
        if self._question is None:
            return False
        with watched(self._exchange.client):
            self._vector = await answers.embedded(self._question.text)
        if self._vector is None:
            return False
        now = time.time()
        for likeness, key in answers.questions.nearest(self._question.conversation, self._vector, least):
            entry = answers.store.get(key, self._reuse, now)
            if entry is not None:
                said = (b"x-llmgw-cache-similarity", f"{likeness:.4f}".encode())
                await self._tell(entry, rules.SIMILAR, said)
                return True
        return False

    async def _tell(self, entry: Entry, result: str, *further: tuple[bytes, bytes]) -> None:
        """In the form that was asked for, as an answer of its own."""
        exchange = self._exchange
        request = exchange.request
        assert request is not None
        self.result, self.saved = result, entry
        exchange.capture = None
        exchange.tally.usage = usage.Usage(0, 0, 0)
        headers = [h for h in exchange.headers if h[0] != b"x-llmgw-cache"]
        age_s = max(0, time.time() - entry.kept_at)
        headers += [(b"x-llmgw-cache", result.encode()), (b"age", b"%d" % age_s), *further]
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
        elif capture.size <= AT_ONCE_BYTES:
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
            events = [event for block in blocks for event in sse.split(block)]
            for i in range(0, len(events), _EVENTS_A_PAUSE):
                joined.feed(b"".join(events[i : i + _EVENTS_A_PAUSE]))
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
        counted, further = exchange.tally.usage or usage.Usage(), self._vector.size if self._vector is not None else 0
        entry = Entry(asked.project, asked.model, body, time.time(), counted, further)
        if answers.store.put(asked.key, entry) and self._question is not None and self._vector is not None:
            answers.questions.add(asked.key, self._question.conversation, self._vector)
        if answers.policy.shared:
            answers.shared.keep(asked.key, entry, self._reuse.ttl_s, answers.policy.max_bytes)
