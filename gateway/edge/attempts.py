"""A request at one model's replicas: attempts until one is answered, or no further one is allowed."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from agent.wire.reason import Reason
from gateway.core import errors, prefix, retry, router, sessions, usage
from gateway.core import request as requests
from gateway.core.load import Ticket
from gateway.core.snapshot import ModelEntry
from gateway.core.trace import lines
from gateway.edge import relay
from gateway.edge.external import Key
from gateway.edge.replicas import Replica
from gateway.edge.upstream import UpstreamError

if TYPE_CHECKING:
    from gateway.edge.app import Edge
    from gateway.edge.exchange import Exchange

_CODES = {
    "idle": "model_loading",
    "starting": "model_loading",
    "loading": "model_loading",
    "waiting": "model_waiting",
    "parked": "model_parked",
    "stopped": "model_stopped",
    "not_running": "model_not_running",
}


_UNKNOWN = usage.Usage()
SYSTEM_STOPPED_S = 30
"""A whole system that was stopped is not back at once."""


def closed(edge: Edge) -> errors.Unavailable | None:
    """What every request for a model is told while the whole system is stopped."""
    policies = edge.snapshots.current.policies
    if not policies.stopped:
        return None
    note = f": {policies.stopped_note}" if policies.stopped_note else ""
    return errors.Unavailable(
        f"the system was stopped by an administrator{note}", code="system_stopped", retry_after_s=SYSTEM_STOPPED_S
    )


def unavailable(edge: Edge, entry: ModelEntry, why: Reason | None) -> errors.Unavailable:
    if (stopped := closed(edge)) is not None:
        return stopped
    code = _CODES.get(entry.state, "no_capacity")
    if entry.external is not None and entry.state == "serving":
        code, said = "no_usable_key", edge.externals.why_none(entry.name)
    elif entry.state == "serving":
        said = why.sentence if why is not None else "no replica is ready at the moment"
    else:
        said = f"it is {entry.state.replace('_', ' ')}" + (f": {entry.reason}" if entry.reason else "")
    return errors.Unavailable(
        f"the model '{entry.name}' cannot answer now: {errors.scrub(said)}",
        code=code,
        retry_after_s=entry.retry_after_s,
    )


class Attempts:
    """Of one exchange, at `entry`'s replicas."""

    __slots__ = ("_entry", "_x")

    def __init__(self, exchange: Exchange, entry: ModelEntry) -> None:
        self._x, self._entry = exchange, entry

    async def run(self) -> None:
        """Returns when the client has its answer; raises why it has none."""
        x, entry = self._x, self._entry
        assert x.request is not None
        model, name = entry.name, entry.origin or entry.name
        if entry.external is not None:
            name = entry.external.model
        most = x.hold.max_tokens if x.hold is not None else None
        body = requests.outgoing(x.raw, x.request, name, entry.developer_role, most)
        fleet, attempts, stale_used = x.edge.fleet, 0, False
        text, session = self._affinity()
        route_by = x.edge.snapshots.current.policies.route_by
        tried: set[str] = set()
        while True:
            now = time.monotonic()
            if x.trace:
                x.trace.begin("schedule", time.perf_counter())
            choice = fleet.choose(model, router.Ask(now, tried, text, session, route_by))
            if isinstance(choice, Reason):
                raise self._no_choice(choice, now)
            replica, heads = choice.load, choice.load.heads
            attempts += 1
            x.attempts += 1
            x.replica, x.route = replica, x.instead + choice.reason.sentence
            x.edge.metrics.routed(model, choice.reason.code)
            x.ticket = fleet.begin(choice, text, now)
            try:
                failure = await self._attempt(replica, heads[x.endpoint], body)
                x.edge.metrics.attempted(replica, failure)
                if x.trace:
                    x.trace.end(time.perf_counter(), (failure.code or failure.kind.value) if failure else "")
                if failure is None:
                    self._served(replica, x.ticket)
                    return
                failure, passed_over = self._failed(replica, x.ticket, failure, heads, now, tried)
            finally:
                x.ticket.end()
            if passed_over:
                x.edge.metrics.retried(model)
                attempts, tried = attempts - 1, tried | {replica.name}
                continue  # it is out or rests, and another one is asked
            decision = retry.decide(
                failure,
                attempts=attempts,
                retries=x.edge.snapshots.current.policies.retries,
                content_sent=x.tally.content_sent,
                others=any(r.endpoint.replica not in tried and r is not replica for r in fleet.of(model)),
                stale_used=stale_used,
            )
            if isinstance(decision, retry.GiveUp):
                raise decision.error
            x.edge.metrics.retried(model)
            if decision.counts:
                tried.add(replica.endpoint.replica)
            else:
                attempts, stale_used = attempts - 1, True
            if decision.after_s:
                await asyncio.sleep(decision.after_s)

    def _affinity(self) -> tuple[prefix.Text, int | None]:
        """What may draw the request to one of several replicas: its text, and its session. A provider's keys have no
        caches of their own, but shares."""
        x, entry = self._x, self._entry
        if entry.external is not None or len(x.edge.fleet.of(entry.name)) < 2:
            return prefix.NOTHING, None
        assert x.request is not None
        session = x.client.named.get(b"x-session-id") or x.request.user
        text = prefix.NOTHING if x.endpoint == requests.EMBEDDINGS else prefix.read(x.raw, entry.name)
        return text, sessions.seed(session) if session else None

    async def _attempt(self, replica: Replica, start: bytes, body: bytes) -> retry.Failure | None:
        """One try on one replica; None when the client has its answer."""
        x, entry = self._x, self._entry
        policies = x.edge.snapshots.current.policies
        connection, trace = None, self._traced(replica)
        try:
            connection = replica.pool.take(x.loop.time())
            if connection is None:
                try:
                    connection = await replica.pool.connect(policies.connect_timeout_s)
                except OSError as e:
                    why = ", for its certificate is not trusted here" if isinstance(e, ssl.SSLError) else ""
                    return retry.Failure(retry.Kind.CONNECT, f"the engine cannot be reached{why}")
            head = b"%bx-request-id: %b\r\n%bcontent-length: %d\r\n\r\n" % (
                start,
                x.headers[0][1],
                trace,
                len(body),
            )
            x.sent_at = time.perf_counter()
            if x.keeping is not None:
                x.keeping.request, x.keeping.model = body, entry.name
            connection.send(head, body)
            return await relay.relay(x, connection, policies)
        except UpstreamError as broken:
            kind = retry.Kind.STALE if broken.stale else retry.Kind.RESET
            return retry.Failure(kind, f"the engine failed in the middle of the request: {broken}")
        except errors.EngineRefused as refused:
            if isinstance(replica, Key):  # the caller's fault: the key is good
                replica.accepted()
                refused.sentence = replica.hushed(refused.sentence)
            raise
        finally:
            if connection is not None:
                connection.release()

    def _traced(self, replica: Replica) -> bytes:
        """The attempt's lines in the engine's request, which lead its own spans to ours, or to the caller's."""
        x = self._x
        if x.trace:
            said = {"gen_ai.provider.name": replica.endpoint.engine, "llmgw.replica": replica.endpoint.replica}
            x.trace.end(time.perf_counter(), **{"llmgw.route": x.route})
            context = x.trace.attempt(time.perf_counter(), **said)
            return b"" if isinstance(replica, Key) else context
        if isinstance(replica, Key):
            return b""  # what a trace carries along stays in the cluster
        parent = x.client.header(b"traceparent")
        return lines(parent, x.client.header(b"tracestate")) if parent else b""

    def _served(self, replica: Replica, ticket: Ticket) -> None:
        found = self._x.tally.usage or _UNKNOWN
        ticket.served(time.monotonic(), found.prompt, found.cached)
        if isinstance(replica, Key):
            replica.accepted()

    def _failed(
        self,
        replica: Replica,
        ticket: Ticket,
        failure: retry.Failure,
        heads: dict[str, bytes],
        now: float,
        tried: set[str],
    ) -> tuple[retry.Failure, bool]:
        """The failure as it may be told, and whether it was a provider's key that is out or rests now, so that another
        one is asked."""
        x = self._x
        if isinstance(replica, Key):
            failure = replace(failure, sentence=replica.hushed(failure.sentence))
        if failure.kind is not retry.Kind.STALE:
            x.hop(f"{self._entry.name}@{replica.name}: {failure.sentence}")
        if isinstance(replica, Key) and x.edge.externals.failed(replica, failure, heads):
            if heads is replica.heads and replica.name in tried:
                raise self._keys_busy(now)
            return failure, True
        self._against(replica, ticket, failure)
        return failure, False

    def _against(self, replica: Replica, ticket: Ticket, failure: retry.Failure) -> None:
        x = self._x
        now, unreachable = time.monotonic(), failure.kind is retry.Kind.CONNECT
        if failure.against_replica:
            was = replica.breaker
            ticket.failed(now, unreachable)
            if was.allows(now) and not replica.breaker.allows(now):
                x.edge.metrics.opened(replica)
        if unreachable:
            x.edge.fleet.lost(replica)
        if failure.retry_after_s is not None:
            replica.rest(now + failure.retry_after_s)

    def _no_choice(self, why: Reason, now: float) -> errors.GatewayError:
        x, entry = self._x, self._entry
        if why.code == router.ALL_BUSY:
            wait_s = max(1, ceil(router.rest_s(x.edge.fleet.of(entry.name), now)))
            if entry.external is not None:
                return self._keys_busy(now)
            return errors.Unavailable(why.sentence, code="engine_busy", retry_after_s=wait_s)
        return unavailable(x.edge, x.edge.model(entry.name) or entry, why)

    def _keys_busy(self, now: float) -> errors.KeysBusy:
        x, entry = self._x, self._entry
        wait_s = max(1, ceil(router.rest_s(x.edge.fleet.of(entry.name), now)))
        sentence = f"the provider of '{entry.name}' asked for a pause: try again in {wait_s} s"
        return errors.KeysBusy(sentence, retry_after_s=wait_s)
