"""What an edge counts of its requests: a handful of additions each."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

from gateway.core.admission import bands
from gateway.core.retry import Failure
from gateway.core.saving import Saving
from gateway.core.snapshot import Scope
from gateway.core.usage import Usage
from gateway.edge.external import STANDINGS
from gateway.edge.replicas import Replica
from llmgw import metrics, series
from llmgw.price import NANO

if TYPE_CHECKING:
    from gateway.edge.app import Edge

MOST_VALUES = 100
"""Of a tag, that have a series of their own in an edge."""


class Alike:
    """Requests that are alike in all their labels, since the last fold: a request is a few additions here."""

    __slots__ = ("_figures", "_labels", "_seconds", "cached", "completion", "cost", "prompt", "requests", "scope")

    def __init__(self, figures: metrics.Figures, model: str, endpoint: str, outcome: str, scope: Scope | None) -> None:
        self._figures, self._labels, self.scope = figures, (model, endpoint, outcome), scope
        self._seconds = figures.series(series.REQUEST_SECONDS, (model, endpoint))
        self.requests = self.prompt = self.completion = self.cached = self.cost = 0

    def ended(self, duration_s: float, counts: Usage, cost: int | None, ttft_s: float | None) -> None:
        self.requests += 1
        self.prompt += counts.prompt or 0
        self.completion += counts.completion or 0
        self.cached += counts.cached or 0
        self.cost += cost or 0
        seconds = self._seconds
        seconds[0] += duration_s
        seconds[1 + bisect_left(series.REQUEST_SECONDS.buckets, duration_s)] += 1
        if ttft_s is not None:
            self._streamed(duration_s, counts.completion, ttft_s)

    def _streamed(self, duration_s: float, completion: int | None, ttft_s: float) -> None:
        model, _, outcome = self._labels
        figures, project = self._figures, self.scope.project if self.scope is not None else ""
        figures.observe(series.TTFT, ttft_s, (model,))
        if outcome == "ok" and completion is not None and completion > 1:
            each_s = max(1e-9, (duration_s - ttft_s) / (completion - 1))
            figures.observe(series.TPOT, each_s, (model,))
            figures.observe(series.OUTPUT_RATE, 1.0 / each_s, (model,))
            if project:
                figures.observe(series.TENANT_TPOT, each_s, (project,))
                figures.observe(series.TENANT_OUTPUT_RATE, 1.0 / each_s, (project,))

    def fold(self, figures: metrics.Figures) -> None:
        model, _, outcome = self._labels
        figures.add(series.REQUESTS, self._labels, self.requests)
        counts = ("prompt", self.prompt), ("completion", self.completion), ("cached", self.cached)
        for kind, count in counts:
            if count:
                figures.add(series.TOKENS, (model, kind), count)
        if self.scope is None:
            return
        whose = (self.scope.organisation, self.scope.team, self.scope.project)
        figures.add(series.TENANT_REQUESTS, (*whose, outcome), self.requests)
        for kind, count in counts:
            if count:
                figures.add(series.TENANT_TOKENS, (*whose, kind), count)
        if self.cost:
            figures.add(series.TENANT_COST, whose, self.cost / NANO)


class EdgeFigures:
    """Model labels are names of the catalogue or empty, so that no client can make series."""

    def __init__(self) -> None:
        self.figures = metrics.Figures()
        self._replicas: frozenset[str] = frozenset()
        self._values: dict[str, set[str]] = {}
        self._alike: dict[tuple[str, str, str, int], Alike] = {}
        """Since the last fold; each holds its scope, so that no other has the same id meanwhile."""
        self._routed: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._answered: defaultdict[Replica, int] = defaultdict(int)
        self._gaps: dict[str, list[float]] = {}

    def retried(self, model: str) -> None:
        self.figures.add(series.RETRIES, (model,))

    def routed(self, model: str, reason: str) -> None:
        self._routed[model, reason] += 1

    def queued(self, model: str, band: str, waited_s: float) -> None:
        self.figures.observe(series.QUEUE_SECONDS, waited_s, (model, band))

    def not_let_in(self, model: str, band: str, reason: str) -> None:
        self.figures.add(series.QUEUE_REFUSED, (model, band, reason))

    def attempted(self, replica: Replica, failure: Failure | None) -> None:
        if failure is None:
            self._answered[replica] += 1
        else:
            self.figures.add(series.ATTEMPTS, (replica.endpoint.model, replica.name, failure.kind.value))

    def opened(self, replica: Replica) -> None:
        self.figures.add(series.BREAKER_OPENED, (replica.endpoint.model, replica.name))

    def reused(self, model: str, result: str) -> None:
        """A request of a project that reuses answers is over."""
        self.figures.add(series.CACHE_REQUESTS, (model, result))

    def saved(self, project: str, model: str, found: Saving, hit: bool) -> None:
        if hit:
            self.figures.add(series.CACHE_SAVED_TOKENS, (project, model), found.tokens)
        if found.cost:
            metric = series.CACHE_SAVED_COST if hit else series.PREFIX_SAVED_COST
            self.figures.add(metric, (project, model), found.cost / NANO)

    def fell_back(self, asked: str, served: str, reason: str) -> None:
        self.figures.add(series.FALLBACKS, (asked, served, reason))

    def alike(self, model: str, endpoint: str, outcome: str, scope: Scope | None) -> Alike:
        """Where a request that is over is counted. `scope` None: nobody's, for its key was wrong."""
        key = (model, endpoint, outcome, id(scope))
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = Alike(self.figures, model, endpoint, outcome, scope)
        return found

    def gaps(self, model: str) -> list[float]:
        """For the seconds between two pieces of its streams, one after the other: they are told into buckets later."""
        return self._gaps.setdefault(model, [])

    def fold(self) -> None:
        """Once a second: what was gathered becomes figures."""
        for model, gaps in self._gaps.items():
            self.figures.observe_all(series.INTER_TOKEN, gaps, (model,))
            gaps.clear()
        gathered, self._alike = self._alike, {}
        for found in gathered.values():
            found.fold(self.figures)
        for route, count in self._routed.items():
            self.figures.add(series.ROUTES, route, count)
        for replica, count in self._answered.items():
            self.figures.add(series.ATTEMPTS, (replica.endpoint.model, replica.name, "answered"), count)
        self._routed.clear()
        self._answered.clear()

    def tagged(self, labels: tuple[str, ...], tags: dict[str, str], outcome: str, counts: Usage) -> None:
        """By the tags that the settings name; the first values of each apart: a tag is the client's to set."""
        for tag in labels:
            value = tags.get(tag)
            if value is None:
                continue
            known = self._values.setdefault(tag, set())
            if value not in known:
                if len(known) < MOST_VALUES:
                    known.add(value)
                else:
                    value = "other"
            self.figures.add(series.TAGGED_REQUESTS, (tag, value, outcome))
            for direction, count in (("prompt", counts.prompt), ("completion", counts.completion)):
                if count:
                    self.figures.add(series.TAGGED_TOKENS, (tag, value, direction), count)

    def gauge(self, edge: Edge) -> None:
        """Once a second: what is true now."""
        self.fold()
        put = self.figures.put
        for model, live in edge.live.models.items():
            put(series.IN_FLIGHT, live.in_flight, (model,))
        put(series.EDGES, 1, (edge.form,))
        put(series.EDGE_TASKS, len(asyncio.all_tasks(edge.loop)))
        for metric in (series.BREAKERS, series.ENGINE_RUNNING, series.ENGINE_WAITING, series.ENGINE_KV):
            self.figures.clear(metric)
        now = edge.loop.time()
        known = frozenset(replica.name for replica in edge.fleet)
        if known != self._replicas:
            self._replicas = known
            self.figures.keep(known)
        broken: dict[str, int] = {}
        for replica in edge.fleet:
            name = replica.endpoint.model
            broken[name] = broken.get(name, 0) + (not replica.breaker.allows(now))
            said = replica.gauges
            put(series.ENGINE_RUNNING, said.running, (name, replica.name))
            put(series.ENGINE_WAITING, said.waiting, (name, replica.name))
            put(series.ENGINE_KV, said.kv_usage, (name, replica.name))
        for name, count in broken.items():
            put(series.BREAKERS, count, (name,))
        self._queues(edge, now)
        self.figures.clear(series.EXTERNAL_KEYS)
        for model, keys in edge.externals.report(time.monotonic()).items():
            states = dict.fromkeys(STANDINGS.values(), 0)
            for key in keys:
                states[STANDINGS[key["code"]]] += 1
            for state, count in states.items():
                put(series.EXTERNAL_KEYS, count, (model, state))
        snapshot = edge.snapshots.current
        for part in ("tenancy", "catalog", "endpoints", "policies"):
            version = getattr(snapshot, part).version
            put(series.SNAPSHOT_VERSION, version or None, (part,))
        reached = edge.snapshots.reached_at
        put(series.SNAPSHOT_AGE, None if reached is None else max(0.0, now - reached))
        put(series.CACHE_BYTES, edge.answers.store.bytes)
        put(series.CACHE_ENTRIES, len(edge.answers.store))
        put(series.LEDGER_HELD, len(edge.ledger.live))
        put(series.LEDGER_AWAY, 1.0 if edge.ledger.away_since is not None else 0.0)
        edge.keeper.count(self.figures)
        put(series.SPOOL_WAITING, edge.spool.waiting)
        put(series.SPOOL_FAILING, 1.0 if edge.spool.failing else 0.0)

    def _queues(self, edge: Edge, now: float) -> None:
        put = self.figures.put
        for metric in (series.QUEUE_WAITING, series.SATURATION, series.SLO, series.SLO_P99):
            self.figures.clear(metric)
        for name, live in edge.live.models.items():
            live.waiting = edge.doors.waiting(name)
        for name, door in edge.doors.by_model.items():
            for rank, band in enumerate(bands.BANDS):
                put(series.QUEUE_WAITING, door.line.bands[rank].waiting, (name, band))
            room = door.room(now)
            put(series.SATURATION, room.saturation() if room is not None else None, (name,))
            if door.slo is not None:
                put(series.SLO_P99, door.promise.ttft_p99_s, (name, "ttft"))
                put(series.SLO_P99, door.promise.tpot_p99_s, (name, "tpot"))
        for name, entry in edge.snapshots.current.catalog.models.items():
            if entry.slo is not None:
                put(series.SLO, entry.slo.ttft_p99_s, (name, "ttft"))
                put(series.SLO, entry.slo.tpot_p99_s, (name, "tpot"))
