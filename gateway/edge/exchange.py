"""One inference request from its first byte to its row in the books."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import replace
from math import ceil
from random import getrandbits
from typing import TYPE_CHECKING

from agent.wire.reason import Reason
from gateway.core import chain, errors, ids, prefix, principal, retry, router, saving, sessions, tags, usage
from gateway.core import request as requests
from gateway.core.load import Ticket
from gateway.core.record import Intent, Settlement
from gateway.core.snapshot import ModelEntry
from gateway.core.trace import lines
from gateway.edge import relay, reuse
from gateway.edge.capture import Capture
from gateway.edge.client import Client, ClientLeft, Headers
from gateway.edge.external import Key
from gateway.edge.kept import Keeping
from gateway.edge.ledger.till import Hold
from gateway.edge.queue import Place
from gateway.edge.replicas import Replica
from gateway.edge.spool import SpoolFull
from gateway.edge.tally import Tally
from gateway.edge.upstream import UpstreamError

if TYPE_CHECKING:
    from gateway.edge.app import Edge

CLIENT_LEFT = 499
MOST_HOPS = 12
_CODES = {"loading": "model_loading", "parked": "model_parked", "stopped": "model_stopped"}


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
            if self.client.left:
                status = 200 if self.client.opened else CLIENT_LEFT
                outcome, code = "client_left", "client_left"
            else:  # the process is stopping
                status = 200 if self.client.opened else 503
                outcome, code = "timed_out", "gateway_stopping"
                await self._refuse(_STOPPING)
        except Exception:
            self._settle("refused", 500, "internal_error")
            raise
        finally:
            self._settle(outcome, status, code)

    # -- before dispatch

    async def _answer(self) -> None:
        edge, client = self.edge, self.client
        own = client.header(b"x-client-request-id")
        if own and len(own) <= 128 and own.isascii() and own.decode().isprintable():
            self.headers.append((b"x-client-request-id", own))
        if client.method != "POST":
            raise errors.WrongMethod(f"{client.path} takes POST, not {client.method}", "POST")
        snapshot = edge.snapshots.current
        token = principal.token_of(client.header(b"authorization"), client.header(b"x-api-key"))
        self.who = principal.resolve(token, snapshot.tenancy, edge.chat_secret, self.at)
        self.raw = await client.body(snapshot.policies.max_body_bytes)
        self.request = requests.read(self.endpoint, self.raw)
        if self.request.metadata or client.header(tags.HEADER) is not None:
            self.tags = tags.read(self.request.metadata, (v for name, v in client.headers if name == tags.HEADER))
        if self.who.replay is not None:
            self.tags |= {"replay_of": self.who.replay.request, "replayed_by": self.who.replay.actor}
            self.headers.append((b"x-llmgw-replay-of", self.who.replay.request.encode()))
        if self.trace:
            self.trace.begin("admission", time.perf_counter())
        self.entry = entry = self._model(self.request)
        self.look = edge.answers.look(self)
        held = self.look is not None and await self.look.held()
        if not held:
            self._admit(entry)
        self.hold = await self._reserve(self.who, self.request, entry, free=held)
        self.entry = entry = self.hold.entry
        self.headers += [*self.hold.headers, (b"x-llmgw-served-model", entry.name.encode())]
        if self.look is not None and await self.look.answered():
            return
        self.led_on = bool(entry.fallbacks)
        try:
            edge.spool.intend(self._intent())
        except SpoolFull as e:
            raise errors.Unavailable(str(e), code="books_closed", retry_after_s=5) from None
        self.intended = True
        self.keeping = edge.keeper.begin(self)
        edge.live.began(entry.name)
        try:
            client.watch()
            await self._dispatch()
            if self.look is not None and self.replica is not None:
                self.look.keep(self.replica.endpoint.model)
        finally:
            edge.doors.over(self, self.place)
            client.unwatch()
            edge.live.ended(self.entry.name)

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
        if not entry.fallbacks and not self.edge.fleet.of(entry.name):
            raise self._unavailable(entry, None)

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

    def _unavailable(self, entry: ModelEntry, why: Reason | None) -> errors.Unavailable:
        code = _CODES.get(entry.state, "no_capacity")
        if entry.external is not None and entry.state == "serving":
            code, said = "no_usable_key", self.edge.externals.why_none(entry.name)
        elif entry.state == "serving":
            said = why.sentence if why is not None else "no replica is ready at the moment"
        else:
            said = f"it is {entry.state.replace('_', ' ')}" + (f": {entry.reason}" if entry.reason else "")
        return errors.Unavailable(
            f"the model '{entry.name}' cannot answer now: {errors.scrub(said)}",
            code=code,
            retry_after_s=entry.retry_after_s,
        )

    # -- dispatch

    async def _dispatch(self) -> None:
        """To the model that was admitted; where it cannot answer, along its fallbacks. Never after content."""
        asked, tried = self._known(), [self._known().name]
        first: errors.GatewayError | None = None
        while True:
            try:
                return await self._let_in(self._known())
            except errors.GatewayError as e:
                if not e.elsewhere or not self.led_on or self.tally.content_sent:
                    raise
                first = first or e
                self._hop(f"{tried[-1]}: {e.name}")
                if not await self._next(asked, tried, e.name):
                    raise first from None

    async def _next(self, asked: ModelEntry, tried: list[str], why: str) -> bool:
        """Whether another model may answer: from here on this exchange is that model's, and pays its price."""
        who, request, edge, hold = self.who, self.request, self.edge, self.hold
        assert who is not None and request is not None and hold is not None  # noqa: PT018 - since `_answer`
        while True:
            step = chain.next_after(asked, tried, edge.model, who, request)
            for passed in step.passed:
                self._hop(passed)
            if step.entry is None:
                return False
            tried.append(step.entry.name)
            try:
                self.hold = await edge.till.move(hold, who, request, step.entry, edge.snapshots.current.policies)
                break
            except errors.GatewayError as e:
                self._hop(f"{step.entry.name}: {e.name}")
        edge.metrics.fell_back(self.asked_model, step.entry.name, why)
        edge.doors.over(self, self.place)
        edge.live.ended(self._known().name)
        edge.live.began(step.entry.name)
        self.entry, self.replica, self.place = step.entry, None, None
        told = (b"x-llmgw-served-model", b"x-llmgw-fallback", b"x-llmgw-max-tokens")
        self.headers = [h for h in self.headers if h[0] not in told]
        self.headers += [h for h in self.hold.headers if h[0] == b"x-llmgw-max-tokens"]
        self.headers += [(told[0], step.entry.name.encode()), (told[1], why.encode())]
        self.instead = f"instead of {asked.name}, which could not answer ({why}): "
        return True

    def _hop(self, said: str) -> None:
        if len(self.hops) < MOST_HOPS and said not in self.hops:
            self.hops.append(said[:300])

    async def _let_in(self, entry: ModelEntry) -> None:
        """Through the model's door, where others may wait already, and to its replicas."""
        doors = self.edge.doors
        self.place = place = doors.enter(self, entry)
        if place is not None and place.waits:
            await doors.wait(self, place)
        await self._attempts(entry)

    async def _attempts(self, entry: ModelEntry) -> None:
        """Attempts until one is answered, or no further one is allowed."""
        assert self.request is not None
        model, name = entry.name, entry.origin or entry.name
        if entry.external is not None:
            name = entry.external.model
        most = self.hold.max_tokens if self.hold is not None else None
        body = requests.outgoing(self.raw, self.request, name, entry.developer_role, most)
        fleet, attempts, stale_used = self.edge.fleet, 0, False
        text, session = self._affinity(entry)
        route_by = self.edge.snapshots.current.policies.route_by
        tried: set[str] = set()
        while True:
            now = time.monotonic()
            if self.trace:
                self.trace.begin("schedule", time.perf_counter())
            choice = fleet.choose(model, router.Ask(now, tried, text, session, route_by))
            if isinstance(choice, Reason):
                raise self._no_choice(choice, entry, now)
            replica, heads = choice.load, choice.load.heads
            attempts += 1
            self.attempts += 1
            self.replica, self.route = replica, self.instead + choice.reason.sentence
            self.edge.metrics.routed(model, choice.reason.code)
            self.ticket = fleet.begin(choice, text, now)
            try:
                failure = await self._attempt(replica, heads[self.endpoint], body)
                self.edge.metrics.attempted(replica, failure)
                if self.trace:
                    self.trace.end(time.perf_counter(), (failure.code or failure.kind.value) if failure else "")
                if failure is None:
                    found = self.tally.usage or usage.Usage()
                    self.ticket.served(time.monotonic(), found.prompt, found.cached)
                    if isinstance(replica, Key):
                        replica.accepted()
                    return
                if isinstance(replica, Key):
                    failure = replace(failure, sentence=replica.hushed(failure.sentence))
                if failure.kind is not retry.Kind.STALE:
                    self._hop(f"{model}@{replica.name}: {failure.sentence}")
                if isinstance(replica, Key) and self.edge.externals.failed(replica, failure, heads):
                    if heads is replica.heads and replica.name in tried:
                        raise self._keys_busy(entry, now)
                    self.edge.metrics.retried(model)
                    attempts, tried = attempts - 1, tried | {replica.name}
                    continue  # it is out or rests, and another one is asked
                self._failed(replica, self.ticket, failure)
            finally:
                self.ticket.end()
            decision = retry.decide(
                failure,
                attempts=attempts,
                retries=self.edge.snapshots.current.policies.retries,
                content_sent=self.tally.content_sent,
                others=any(r.endpoint.replica not in tried and r is not replica for r in fleet.of(model)),
                stale_used=stale_used,
            )
            if isinstance(decision, retry.GiveUp):
                raise decision.error
            self.edge.metrics.retried(model)
            if decision.counts:
                tried.add(replica.endpoint.replica)
            else:
                attempts, stale_used = attempts - 1, True
            if decision.after_s:
                await asyncio.sleep(decision.after_s)

    def _affinity(self, entry: ModelEntry) -> tuple[prefix.Text, int | None]:
        """What may draw the request to one of several replicas: its text, and its session. A provider's keys have no
        caches of their own, but shares."""
        if entry.external is not None or len(self.edge.fleet.of(entry.name)) < 2:
            return prefix.NOTHING, None
        assert self.request is not None
        session = self.client.header(b"x-session-id") or self.request.user
        text = prefix.NOTHING if self.endpoint == requests.EMBEDDINGS else prefix.read(self.raw, entry.name)
        return text, sessions.seed(session) if session else None

    def _failed(self, replica: Replica, ticket: Ticket, failure: retry.Failure) -> None:
        now, unreachable = time.monotonic(), failure.kind is retry.Kind.CONNECT
        if failure.against_replica:
            was = replica.breaker
            ticket.failed(now, unreachable)
            if was.allows(now) and not replica.breaker.allows(now):
                self.edge.metrics.opened(replica)
        if unreachable:
            self.edge.fleet.lost(replica)
        if failure.retry_after_s is not None:
            replica.rest(now + failure.retry_after_s)

    def _no_choice(self, why: Reason, entry: ModelEntry, now: float) -> errors.GatewayError:
        if why.code == router.ALL_BUSY:
            wait_s = max(1, ceil(router.rest_s(self.edge.fleet.of(entry.name), now)))
            if entry.external is not None:
                return self._keys_busy(entry, now)
            return errors.Unavailable(why.sentence, code="engine_busy", retry_after_s=wait_s)
        return self._unavailable(self.edge.model(entry.name) or entry, why)

    def _keys_busy(self, entry: ModelEntry, now: float) -> errors.KeysBusy:
        wait_s = max(1, ceil(router.rest_s(self.edge.fleet.of(entry.name), now)))
        sentence = f"the provider of '{entry.name}' asked for a pause: try again in {wait_s} s"
        return errors.KeysBusy(sentence, retry_after_s=wait_s)

    def first_content(self) -> None:
        """The stream's first content is there."""
        if self.ticket is not None:
            self.ticket.first(time.monotonic())

    async def _attempt(self, replica: Replica, start: bytes, body: bytes) -> retry.Failure | None:
        """One try on one replica; None when the client has its answer."""
        policies = self.edge.snapshots.current.policies
        connection, trace = None, self._traced(replica)
        try:
            connection = replica.pool.take(self.loop.time())
            if connection is None:
                try:
                    connection = await replica.pool.connect(policies.connect_timeout_s)
                except OSError as e:
                    why = ", for its certificate is not trusted here" if isinstance(e, ssl.SSLError) else ""
                    return retry.Failure(retry.Kind.CONNECT, f"the engine cannot be reached{why}")
            head = b"%bx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n" % (
                start,
                self.headers[0][1],
                trace,
                len(body),
            )
            self.sent_at = time.perf_counter()
            if self.keeping is not None:
                self.keeping.request, self.keeping.model = body, self._known().name
            connection.send(head, body)
            return await relay.relay(self, connection, policies)
        except UpstreamError as e:
            kind = retry.Kind.STALE if e.stale else retry.Kind.RESET
            return retry.Failure(kind, f"the engine failed in the middle of the request: {e}")
        except errors.EngineRefused as e:
            if isinstance(replica, Key):  # the caller's fault: the key is good
                replica.accepted()
                e.sentence = replica.hushed(e.sentence)
            raise
        finally:
            if connection is not None:
                connection.release()

    def _traced(self, replica: Replica) -> bytes:
        """The attempt's lines in the engine's request, which lead its own spans to ours, or to the caller's."""
        if self.trace:
            said = {"gen_ai.provider.name": replica.endpoint.engine, "llmgw.replica": replica.endpoint.replica}
            self.trace.end(time.perf_counter(), **{"llmgw.route": self.route})
            context = self.trace.attempt(time.perf_counter(), **said)
            return b"" if isinstance(replica, Key) else context
        if isinstance(replica, Key):
            return b""  # what a trace carries along stays in the cluster
        parent = self.client.header(b"traceparent")
        return lines(parent, self.client.header(b"tracestate")) if parent else b""

    def answer_headers(self) -> Headers:
        found = self.headers if self.place is None else [*self.headers, *self.place.headers()]
        if self.led_on and not self.tally.content_sent:
            found = [h for h in found if h[0] != b"x-llmgw-served-model"]
        if self.replica is None:  # refused before one was chosen, or kept open in the queue
            return found
        return [*found, (b"x-llmgw-replica", self.replica.label), (b"x-llmgw-route", self.route.encode())]

    # -- the books

    async def _refuse(self, error: errors.GatewayError) -> None:
        self.client.unwatch()
        await self.client.refuse(error, self.answer_headers())

    def _known(self) -> ModelEntry:
        assert self.entry is not None
        return self.entry

    def _intent(self) -> Intent:
        assert self.who is not None
        who, scope, request = self.who, self.who.scope, self.request
        return Intent(
            id=self.id,
            at=self.at,
            endpoint=self.endpoint,
            model=self.asked_model,
            asked=request.asked[:120] if request is not None else "",
            stream=request.stream if request is not None else False,
            organisation=scope.organisation,
            team=scope.team,
            project=scope.project,
            key=who.key,
            person=who.person,
            edge=self.edge.id,
            session=tags.text(self.client.header(b"x-session-id"), 128),
            end_user=tags.text(request.user, 256) if request is not None else "",
            tags=self.tags,
        )

    def _settle(self, outcome: str, status: int, code: str) -> None:
        """Once. What nobody may be charged for (no valid key) is counted, and leaves no row."""
        if self.settled:
            return
        self.settled = True
        if self.keeping is not None:
            self.edge.keeper.keep(self.keeping)
        duration_s = time.perf_counter() - self.began
        counts, estimated = self._counts(outcome)
        model = self.entry.name if self.entry is not None else ""
        project = self.who.scope.project if self.who is not None else ""
        cost = self._cost(outcome, counts)
        self.edge.metrics.settled(model, self.endpoint, outcome, duration_s, self.tally, counts, project)
        if self.tags:
            labels = self.edge.snapshots.current.policies.tag_labels
            self.edge.metrics.tagged(labels, self.tags, outcome, counts)
        self.edge.live.counted(model, counts)
        saved = self._saved(counts)
        if self.look is not None:
            self.edge.metrics.reused(model, self.look.result)
        self.edge.metrics.saved(project, model, saved, self._reused is not None)
        if outcome == "ok":
            self.edge.doors.streamed(self, self.place, counts.completion)
        if self.who is None:
            return
        self.edge.metrics.tenant(self.who.scope, outcome, counts, cost)
        if not self.intended:
            try:
                self.edge.spool.intend(self._intent())
            except SpoolFull:
                return
        replica = self.replica.endpoint if self.replica is not None else None
        ttft_s = self.tally.ttft_s
        settlement = Settlement(
            id=self.id,
            outcome=outcome,
            status=status,
            duration_ms=round(duration_s * 1000, 3),
            ttft_ms=None if ttft_s is None else round(ttft_s * 1000, 3),
            replica=replica.replica if replica is not None else "",
            node=replica.node if replica is not None else "",
            prompt_tokens=counts.prompt,
            completion_tokens=counts.completion,
            cached_tokens=counts.cached,
            estimated=estimated,
            attempts=self.attempts,
            code=code[:60],
            route=self.route,
            cache=self.look.result if self.look is not None else "",
            saved_tokens=saved.tokens or None,
            saved=saved.cost if saved.tokens else None,
            served=model if model != self.asked_model else "",
            cost=cost,
            dispatched_ms=None if self.sent_at is None else round((self.sent_at - self.began) * 1000, 3),
            reason=self.reason[:300],
            queued_ms=self.place.queued_ms if self.place is not None else None,
            hops=tuple(self.hops),
        )
        self.edge.spool.settle(settlement)
        if self.trace and self.edge.tracing:
            self.edge.tracing.send(self.trace, self._intent(), settlement, self.raw, self.began)

    @property
    def _reused(self) -> usage.Usage | None:
        """What the answer counted when it was first given; None where it was not given before."""
        return self.look.saved.usage if self.look is not None and self.look.saved is not None else None

    def _saved(self, counts: usage.Usage) -> saving.Saving:
        price = self.hold.prices(self._known()) if self.hold is not None else None
        return saving.answer(self._reused, price) if self._reused is not None else saving.prefix(counts, price)

    def _cost(self, outcome: str, counts: usage.Usage) -> int | None:
        """What was held is let go, what was used stays. An answer that failed before it had content costs nothing."""
        if self.hold is None:
            return None
        charged = outcome in ("ok", "client_left") or self.tally.content_sent
        cost = self.edge.till.settle(self.hold, self.request, counts, charged, self._known())
        return cost if self.who is None or self.who.replay is None else 0

    def _counts(self, outcome: str) -> tuple[usage.Usage, bool]:
        """The engine's counts; ours, marked, where it worked and could not say."""
        found = self.tally.usage
        if self.replica is None or outcome == "refused":
            return found or usage.Usage(), False
        found = found or usage.Usage()
        if found.prompt is not None and (found.completion is not None or self.endpoint == requests.EMBEDDINGS):
            return found, False
        prompt = found.prompt if found.prompt is not None else usage.estimate_prompt(self.raw)
        answered = found.completion if found.completion is not None else self.tally.estimated()
        return usage.Usage(prompt, answered, found.cached), True


_STOPPING = errors.Unavailable("the gateway is being restarted: try again", code="gateway_stopping", retry_after_s=2)
