"""The door before each model's replicas: requests wait here, in order, instead of in an engine that knows no tenants.

Who finds nobody waiting and a place free is through without a wait; the rest have a future each, and are let in by
whoever makes room: a request that ends, a replica that comes, or the look once a second.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from gateway.core import starting
from gateway.core.admission import bands, refusal
from gateway.core.admission.fair import Entry, State
from gateway.core.admission.line import Line
from gateway.core.admission.promise import Promise
from gateway.core.admission.reckoning import Reckoning
from gateway.core.admission.refusal import NotLetIn
from gateway.core.admission.room import Room, cap, partition, room_of, shares, sure
from gateway.core.errors import Unavailable
from gateway.core.snapshot import ModelEntry, Slo
from gateway.edge.client import KEEPALIVE, Headers
from gateway.edge.waits import open_stream

if TYPE_CHECKING:
    from gateway.edge.app import Edge
    from gateway.edge.exchange import Exchange


class Place:
    """One request's, from its coming to its end."""

    __slots__ = ("door", "over", "project", "since", "waiter")

    def __init__(self, door: Door, project: str, since: float, waiter: Waiter | None = None) -> None:
        self.door, self.project, self.since, self.waiter = door, project, since, waiter
        self.over = False

    @property
    def waits(self) -> bool:
        return self.waiter is not None and self.waiter.state is State.WAITS

    @property
    def queued_ms(self) -> float | None:
        """None: it did not wait, or was never let in."""
        waiter = self.waiter
        if waiter is None or waiter.let_in_at is None or waiter.let_in_at == self.since:
            return None
        return round((waiter.let_in_at - self.since) * 1000, 3)

    def headers(self) -> Headers:
        """What the answer says of it."""
        if self.waiter is None:
            return []
        if self.waits and self.door.comes:
            return starting.headers(self.door.entry(), time.time())
        if self.waits:
            position, eta_s = self.door.expects(self.waiter)
            return refusal.place(position, eta_s)
        waited = self.queued_ms
        return [] if waited is None else [(b"x-llmgw-queued-ms", b"%d" % waited)]


class Waiter(Entry):
    """A request that could not be let in at once."""

    __slots__ = ("future", "let_in_at", "max_wait_s", "refused", "start_wait_s")

    def __init__(
        self,
        band: int,
        project: str,
        key: str,
        weight: float,
        tokens: int,
        since: float,
        max_wait_s: float,
        start_wait_s: float,
    ) -> None:
        super().__init__(band, project, key, weight, tokens, since)
        self.max_wait_s, self.start_wait_s = max_wait_s, start_wait_s
        self.future: asyncio.Future[None] | None = None
        self.refused: Unavailable | None = None
        self.let_in_at: float | None = None

    def wake(self) -> None:
        _wake(self.future)


class Door:
    """One model's."""

    def __init__(self, edge: Edge, model: str) -> None:
        self._edge, self.model = edge, model
        self.line, self.reckoning, self.promise = Line(), Reckoning(), Promise()
        self.slo: Slo | None = None
        self.comes = False
        """It does not run, and starts for whoever asks: nobody is let in, and nobody sent on."""
        self.below = (0, 0, 0)
        """Of each band: with fewer let in than that there surely is room, as of the last look."""

    def room(self, now: float, weight: float = 0.0) -> Room | None:
        """`weight`: of a project that has just come."""
        line, edge = self.line, self._edge
        policies = edge.snapshots.current.policies
        found = room_of(edge.fleet.of(self.model), line.held, policies.queue_overcommit, now)
        others = edge.others.waits.get(self.model)
        if found is None and self.comes:
            return Room(0, 0)
        if others is None or found is None:
            return found
        own = line.weight() or weight
        return partition(found, line.held, own, others) if own else found

    def come(self, waiter: Waiter) -> None:
        """Somebody must wait, or is refused: raises `NotLetIn`."""
        line = self.line
        line.wait(waiter)
        self.pump(waiter.since)
        if waiter.state is not State.WAITS:
            return
        if self.comes and starting.hopeless(self.start_s(), waiter.start_wait_s):
            line.left(waiter)
            raise self._not_loaded(waiter)
        position, eta_s = self.expects(waiter)
        most_s = waiter.max_wait_s
        if not self.comes and eta_s > most_s and (self.reckoning.known or not most_s):
            line.left(waiter)
            raise self._refused(waiter, refusal.TOO_LONG, position, eta_s, eta_s - most_s)
        if line.waiting <= self._edge.snapshots.current.policies.queue_limit:
            return
        out = line.put_out_for(waiter)
        if out is not waiter:
            assert isinstance(out, Waiter)
            position, eta_s = self.expects(out)
            line.left(out)
            out.refused = self._refused(out, refusal.PUT_OUT, position, eta_s, eta_s)
            out.wake()
            return
        line.left(waiter)
        raise self._refused(waiter, refusal.FULL, position, eta_s, eta_s)

    def gives_up(self, waiter: Waiter) -> Unavailable:
        """It has waited for as long as it may."""
        position, eta_s = self.expects(waiter)
        self.line.left(waiter)
        if self.comes:
            return self._not_loaded(waiter)
        return self._refused(waiter, refusal.TIMED_OUT, position, eta_s, eta_s)

    def may_wait_s(self, waiter: Waiter) -> float:
        """Longer in the queue of a model that runs than for one that must be started first."""
        return waiter.start_wait_s if self.comes else waiter.max_wait_s

    def expects(self, waiter: Waiter) -> tuple[int, float]:
        """The position, from 1, and the expected wait in seconds of one that waits."""
        requests, tokens = self.line.ahead(waiter)
        if self.comes and not requests:
            return 1, self.start_s() or 0.0
        start_s = (self.start_s() or 0.0) if self.comes else 0.0
        return requests + 1, start_s + self.reckoning.wait_s(tokens, self.line.held)

    def start_s(self) -> float | None:
        """Until the model should serve, where that is known."""
        return starting.expected_s(self.entry(), time.time())

    def entry(self) -> ModelEntry:
        return self._edge.snapshots.current.catalog.models.get(self.model) or ModelEntry(self.model)

    def pump(self, now: float) -> None:
        """Let in whom there is room for."""
        line = self.line
        while line.waiting:
            waiter = line.next(self.room(now))
            if waiter is None:
                return
            assert isinstance(waiter, Waiter)
            waiter.let_in_at = now
            if now > waiter.since:
                self._edge.metrics.queued(self.model, bands.BANDS[waiter.band], now - waiter.since)
            waiter.wake()

    def look(self, entry: ModelEntry | None, now: float) -> None:
        """Once a second, and when the snapshot changed."""
        edge, line = self._edge, self.line
        policies = edge.snapshots.current.policies
        self.slo = entry.slo if entry is not None else None
        self.comes = entry is not None and edge.demands.comes(entry)
        excess = self.promise.excess(self.slo, now) if self.slo is not None else 0.0
        line.shares = shares(excess, (1.0, policies.queue_share_normal, policies.queue_share_batch))
        room = sure(edge.fleet.of(self.model), policies.queue_overcommit, now)
        if self.model in edge.others.waits:
            room = 0
        interactive, normal, batch = (cap(room, share) if room else 0 for share in line.shares)
        self.below = interactive, normal, batch
        line.sweep()
        self.reckoning.fade()
        self.pump(now)

    def _not_loaded(self, waiter: Waiter) -> Unavailable:
        edge, found = self._edge, starting.NotLoaded(self.entry(), time.time())
        edge.metrics.not_let_in(self.model, bands.BANDS[waiter.band], refusal.NOT_LOADED)
        edge.demands.told(self.model, found.retry_after_s or 0.0)
        return found

    def _refused(self, waiter: Waiter, reason: str, position: int, eta_s: float, retry_s: float) -> NotLetIn:
        self._edge.metrics.not_let_in(self.model, bands.BANDS[waiter.band], reason)
        return NotLetIn(reason, self.model, position, eta_s, retry_s)


class Doors:
    """All of an edge's, by model."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self.by_model: dict[str, Door] = {}

    def enter(self, exchange: Exchange, entry: ModelEntry) -> Place | None:
        """A request for a model is there: it is through, or `waits`. None where nothing is to wait for: a model served
        outside the cluster has limits of its own, and the gateway's own replays are past this. Raises `NotLetIn`, and
        `BadRequest` for a header without sense."""
        who, request, client = exchange.who, exchange.request, exchange.client
        assert who is not None
        assert request is not None
        if entry.external is not None or who.replay is not None:
            return None
        door = self.by_model.get(entry.name)
        if door is None:
            door = self.by_model[entry.name] = Door(self._edge, entry.name)
            door.look(entry, time.monotonic())
        asked, may = client.named.get(bands.HEADER), client.named.get(refusal.MAX_WAIT_HEADER)
        band = bands.rank(who.band, asked)
        policies = self._edge.snapshots.current.policies
        max_wait_s = policies.queue_max_wait_s if may is None else refusal.max_wait_s(may, policies.queue_max_wait_s)
        line, scope, now = door.line, who.scope, time.monotonic()
        if entry.on_demand:
            door.comes = self._edge.demands.comes(entry)
            self._edge.demands.ask(entry)
        if (
            not door.comes
            and not line.waiting
            and (line.held < door.below[band] or line.free(band, door.room(now, scope.weight)))
        ):
            line.enter()
            return Place(door, scope.project, now)
        tokens = door.reckoning.tokens(request, len(exchange.raw), scope.project)
        start_wait_s = max_wait_s if may is not None else min(max_wait_s, policies.start_wait_s)
        if may is None and entry.fallbacks:
            start_wait_s = 0.0  # another model may answer at once, and this one starts meanwhile
        waiter = Waiter(band, scope.project, who.key or who.person, scope.weight, tokens, now, max_wait_s, start_wait_s)
        door.come(waiter)
        return Place(door, scope.project, now, waiter)

    async def wait(self, exchange: Exchange, place: Place) -> None:
        """Until it is let in; raises `NotLetIn`. A stream is kept open meanwhile."""
        loop, keepalive_s = self._edge.loop, self._edge.snapshots.current.policies.keepalive_s
        waiter = place.waiter
        assert waiter is not None
        streamed = exchange.request is not None and exchange.request.stream
        keepalive_at = place.since + keepalive_s if streamed else math.inf
        while waiter.state is State.WAITS:
            gives_up_at = place.since + place.door.may_wait_s(waiter)
            waiter.future = loop.create_future()
            timer = loop.call_at(min(gives_up_at, keepalive_at), _wake, waiter.future)
            try:
                await waiter.future
            finally:
                timer.cancel()
            now = loop.time() + 0.001
            if not place.waits:
                break
            if now >= place.since + place.door.may_wait_s(waiter):
                raise place.door.gives_up(waiter)
            if now >= keepalive_at:
                keepalive_at = now + keepalive_s
                await open_stream(exchange)
                await exchange.client.send(KEEPALIVE)
        if waiter.refused is not None:
            raise waiter.refused

    def over(self, exchange: Exchange, place: Place | None) -> None:
        """Once, however it ended: while it waited, or after it was let in."""
        if place is None or place.over:
            return
        place.over = True
        door, waiter = place.door, place.waiter
        line = door.line
        if waiter is not None and waiter.let_in_at is None:
            if waiter.state is State.WAITS:
                line.left(waiter)
            return
        now = time.monotonic()
        line.over(waiter, _learned(exchange, place, now))
        if line.waiting:
            door.pump(now)

    def streamed(self, exchange: Exchange, place: Place | None, completion: int | None) -> None:
        """A stream ended well: its times count for what the model promises."""
        if place is None or place.door.slo is None or exchange.tally.ttft_s is None:
            return
        ttft_s, duration_s = exchange.tally.ttft_s, time.perf_counter() - exchange.began
        tpot_s = (duration_s - ttft_s) / (completion - 1) if completion is not None and completion > 1 else None
        waited_s = (place.queued_ms or 0.0) / 1000
        place.door.promise.streamed(max(0.0, ttft_s - waited_s), tpot_s, time.monotonic())

    def look(self) -> None:
        """Once a second, and when the snapshot changed: a replica may have come, or a setting."""
        now, models = time.monotonic(), self._edge.snapshots.current.catalog.models
        for name, door in list(self.by_model.items()):
            door.look(models.get(name), now)
            if name not in models and not door.line.waiting and not door.line.held:
                del self.by_model[name]

    def waiting(self, model: str) -> int:
        door = self.by_model.get(model)
        return door.line.waiting if door is not None else 0

    def weights(self) -> dict[str, float]:
        """For the other edges: of the projects whose requests wait, by model."""
        return {name: door.line.weight() for name, door in self.by_model.items() if door.line.waiting}


def _learned(exchange: Exchange, place: Place, now: float) -> int | None:
    """The tokens that it took; None where nobody knows."""
    request = exchange.request
    if exchange.replica is None or request is None:
        return 0  # it never came as far as a replica
    tally, found = exchange.tally, exchange.tally.usage
    prompt = found.prompt if found is not None else None
    answer = found.completion if found is not None else None
    if answer is None and tally.content_sent:
        answer = tally.estimated()
    held_s = now - (place.since if place.waiter is None else place.waiter.let_in_at or now)
    return place.door.reckoning.ends(request, len(exchange.raw), place.project, prompt, answer, held_s)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
