"""One inference request from its first byte to its row in the books."""

from __future__ import annotations

import asyncio
import time
from random import getrandbits
from typing import TYPE_CHECKING

from gateway.core import chain, errors, ids, principal, tags
from gateway.core import request as requests
from gateway.core.load import Ticket
from gateway.core.snapshot import ModelEntry
from gateway.edge import books, reuse
from gateway.edge.attempts import Attempts, closed, unavailable
from gateway.edge.capture import Capture
from gateway.edge.client import Client, ClientLeft, Headers
from gateway.edge.kept import Keeping
from gateway.edge.ledger.till import Hold
from gateway.edge.queue import Place
from gateway.edge.replicas import Replica
from gateway.edge.spool import SpoolFull
from gateway.edge.tally import Tally

if TYPE_CHECKING:
    from gateway.edge.app import Edge

CLIENT_LEFT = 499
MOST_HOPS = 12


class Exchange:
    """Everything about one request; `run` never raises but for cancellation."""

    __slots__ = (
        "asked_model",
        "at",
        "attempts",
        "began",
        "capture",
        "client",
        "edge",
        "endpoint",
        "entry",
        "headers",
        "hold",
        "hops",
        "id",
        "instead",
        "intended",
        "keeping",
        "led_on",
        "look",
        "loop",
        "place",
        "raw",
        "reason",
        "replica",
        "request",
        "route",
        "sent_at",
        "settled",
        "tags",
        "tally",
        "ticket",
        "trace",
        "who",
    )

    def __init__(self, edge: Edge, client: Client, endpoint: str) -> None:
        self.edge, self.client, self.endpoint = edge, client, endpoint
        self.loop = edge.loop
        self.began = time.perf_counter()  # the loop's clock counts whole milliseconds
        self.at = time.time()
        self.id = ids.request_id(int(self.at * 1000), getrandbits(80))
        self.headers: Headers = [(b"x-request-id", self.id.encode())]
        self.who: principal.Principal | None = None
        self.request: requests.Request | None = None
        self.entry: ModelEntry | None = None
        """The model that answers."""
        self.asked_model = ""
        """The one that was asked for, by its name."""
        self.hold: Hold | None = None
        self.instead = ""
        """Before the reason of a route: that of a fallback."""
        self.led_on = False
        """It has fallbacks: who answers is known when there is content."""
        self.hops: list[str] = []
        self.raw = b""
        self.tags: dict[str, str] = {}
        self.intended = False
        self.replica: Replica | None = None
        self.place: Place | None = None
        self.ticket: Ticket | None = None
        self.route = ""
        self.attempts = 0
        self.tally = Tally()
        self.look: reuse.Look | None = None
        self.capture: Capture | None = None
        """Takes down what goes out, where somebody wants that."""
        self.keeping: Keeping | None = None
        self.sent_at: float | None = None
        """When the last attempt was."""
        self.reason = ""
        """Why the gateway itself refused."""
        self.settled = False
        self.trace = edge.tracing and edge.tracing.begin(
            client.path, client.header(b"traceparent"), client.header(b"tracestate")
        )

    async def run(self) -> None:
        outcome, status, code = "ok", 200, ""
        try:
            await self._answer()
        except errors.GatewayError as e:
            outcome, status, code = e.outcome, e.answer, e.name
            self.reason = e.sentence if self.replica is None else ""
            if self.client.opened:
                status = 200
            await self._refuse(e)
        except ClientLeft:
            outcome, status, code = "client_left", CLIENT_LEFT, "client_left"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            if self.client.gone():
                status = 200 if self.client.opened else CLIENT_LEFT
                outcome, code = "client_left", "client_left"
            else:  # the process is stopping
                status = 200 if self.client.opened else 503
                outcome, code = "timed_out", "gateway_stopping"
                await self._refuse(_STOPPING)
        except Exception:
            books.close(self, "refused", 500, "internal_error")
            raise
        finally:
            books.close(self, outcome, status, code)

    # -- before dispatch

    async def _answer(self) -> None:
        edge, client = self.edge, self.client
        own = client.named.get(b"x-client-request-id")
        if own and len(own) <= 128 and own.isascii() and own.decode().isprintable():
            self.headers.append((b"x-client-request-id", own))
        if client.method != "POST":
            raise errors.WrongMethod(f"{client.path} takes POST, not {client.method}", "POST")
        snapshot = edge.snapshots.current
        self.who = edge.callers.of(client, snapshot.tenancy, self.at)
        raw = client.at_hand(snapshot.policies.max_body_bytes)
        self.raw = raw if raw is not None else await client.body(snapshot.policies.max_body_bytes)
        self.request = requests.read(self.endpoint, self.raw)
        if self.request.metadata or tags.HEADER in client.named:
            self.tags = tags.read(self.request.metadata, (v for name, v in client.headers if name == tags.HEADER))
        if self.who.replay is not None:
            self.tags |= {"replay_of": self.who.replay.request, "replayed_by": self.who.replay.actor}
            self.headers.append((b"x-llmgw-replay-of", self.who.replay.request.encode()))
        if self.trace:
            self.trace.begin("admission", time.perf_counter())
        self.entry = entry = self._model(self.request)
        if (stopped := closed(edge)) is not None:
            raise stopped
        if self.who.scope.reuse is not None:
            self.look = edge.answers.look(self)
        held = self.look is not None and await self.look.held()
        if not held:
            self._admit(entry)
        self.hold = edge.till.unlimited(self.id, self.at, self.who, entry, edge.snapshots.current.policies)
        if self.hold is None:
            self.hold = await self._reserve(self.who, self.request, entry, free=held)
        self.entry = entry = self.hold.entry
        self.headers += [*self.hold.headers, (b"x-llmgw-served-model", entry.name.encode())]
        if self.look is not None and await self.look.answered():
            return
        self.led_on = bool(entry.fallbacks)
        try:
            edge.spool.intend(books.intent(self))
        except SpoolFull as e:
            raise errors.Unavailable(str(e), code="books_closed", retry_after_s=5) from None
        self.intended = True
        if self.who.scope.keep is not None:
            self.keeping = edge.keeper.begin(self)
        edge.live.of(entry.name).in_flight += 1
        try:
            client.watch()
            await self._dispatch()
            if self.look is not None and self.replica is not None:
                self.look.keep(self.replica.endpoint.model)
        finally:
            edge.doors.over(self, self.place)
            client.unwatch()
            edge.live.of(self.entry.name).in_flight -= 1

    def _model(self, request: requests.Request) -> ModelEntry:
        entry = self.edge.model(request.asked)
        if entry is None:
            raise errors.UnknownModel(f"there is no model '{request.asked[:120]}' here: see /v1/models", param="model")
        assert self.who is not None
        self.entry = entry
        self.asked_model = entry.name
        refusal = chain.refused(entry, self.who, request)
        if refusal is not None:
            raise refusal
        return entry

    def _admit(self, entry: ModelEntry) -> None:
        """May it be dispatched now? Asked before anything is reserved for it."""
        edge = self.edge
        if not entry.fallbacks and not edge.fleet.of(entry.name) and not edge.demands.comes(entry):
            if entry.on_demand:
                edge.demands.ask(entry)
            raise unavailable(self.edge, entry, None)

    async def _reserve(
        self, who: principal.Principal, request: requests.Request, entry: ModelEntry, free: bool
    ) -> Hold:
        """What it may use at the most is held at every level, or it is refused. `free`: it needs no engine, and counts
        as a request only."""
        edge, name = self.edge, who.scope.when_spent
        cheaper = edge.model(name) if name else None
        if cheaper is not None and (cheaper is entry or chain.refused(cheaper, who, request) is not None):
            cheaper = None
        policies = edge.snapshots.current.policies
        return await edge.till.reserve(self.id, self.at, who, request, entry, policies, cheaper, free)

    # -- dispatch

    async def _dispatch(self) -> None:
        """Through the model's door, where others may wait already, and to its replicas; where it cannot answer, along
        its fallbacks. Never after content."""
        asked, tried = self.known(), [self.known().name]
        first: errors.GatewayError | None = None
        while True:
            try:
                entry, doors = self.known(), self.edge.doors
                self.place = place = doors.enter(self, entry)
                if place is not None and place.waits:
                    await doors.wait(self, place)
                return await Attempts(self, entry).run()
            except errors.GatewayError as e:
                if not e.elsewhere or not self.led_on or self.tally.content_sent:
                    raise
                first = first or e
                self.hop(f"{tried[-1]}: {e.name}")
                if not await self._next(asked, tried, e.name):
                    raise first from None

    async def _next(self, asked: ModelEntry, tried: list[str], why: str) -> bool:
        """Whether another model may answer: from here on this exchange is that model's, and pays its price."""
        who, request, edge, hold = self.who, self.request, self.edge, self.hold
        assert who is not None and request is not None and hold is not None  # noqa: PT018 - since `_answer`
        while True:
            step = chain.next_after(asked, tried, edge.model, who, request)
            for passed in step.passed:
                self.hop(passed)
            if step.entry is None:
                return False
            tried.append(step.entry.name)
            try:
                self.hold = await edge.till.move(hold, who, request, step.entry, edge.snapshots.current.policies)
                break
            except errors.GatewayError as e:
                self.hop(f"{step.entry.name}: {e.name}")
        edge.metrics.fell_back(self.asked_model, step.entry.name, why)
        edge.doors.over(self, self.place)
        edge.live.of(self.known().name).in_flight -= 1
        edge.live.of(step.entry.name).in_flight += 1
        self.entry, self.replica, self.place = step.entry, None, None
        told = (b"x-llmgw-served-model", b"x-llmgw-fallback", b"x-llmgw-max-tokens")
        self.headers = [h for h in self.headers if h[0] not in told]
        self.headers += [h for h in self.hold.headers if h[0] == b"x-llmgw-max-tokens"]
        self.headers += [(told[0], step.entry.name.encode()), (told[1], why.encode())]
        self.instead = f"instead of {asked.name}, which could not answer ({why}): "
        return True

    def hop(self, said: str) -> None:
        if len(self.hops) < MOST_HOPS and said not in self.hops:
            self.hops.append(said[:300])

    def first_content(self) -> None:
        """The stream's first content is there."""
        if self.ticket is not None:
            self.ticket.first(time.monotonic())

    def answer_headers(self) -> Headers:
        found = self.headers if self.place is None else [*self.headers, *self.place.headers()]
        if self.led_on and not self.tally.content_sent:
            found = [h for h in found if h[0] != b"x-llmgw-served-model"]
        if self.replica is None:  # refused before one was chosen, or kept open in the queue
            return found
        return [*found, (b"x-llmgw-replica", self.replica.label), (b"x-llmgw-route", self.route.encode())]

    async def _refuse(self, error: errors.GatewayError) -> None:
        self.client.unwatch()
        await self.client.refuse(error, self.answer_headers())

    def known(self) -> ModelEntry:
        assert self.entry is not None
        return self.entry


_STOPPING = errors.Unavailable("the gateway is being restarted: try again", code="gateway_stopping", retry_after_s=2)
