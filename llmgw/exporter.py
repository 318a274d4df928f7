"""`python -m llmgw.exporter`: Prometheus metrics on a listener of their own, summed from what processes push to Redis.

A process that is gone leaves its counters behind and takes its gauges with it. While Redis is away figures are
absent, not zero. Needs no Django.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import redis
from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from llmgw import machine, metrics, node_figures, series

log = logging.getLogger(__name__)
DEAD_S = 15.0
"""Unchanged for so long, by this process's own clock and with Redis reachable, a key's process is gone."""
UP_S = 5.0

# The dead's sum and the removal of the key are one step: a crash in between counts nothing twice.
_FOLD = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
return 1
"""


class Figures:
    """What Redis holds, and when each process's part last changed."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._seen: dict[bytes, tuple[bytes, float]] = {}
        self._reached_at: float | None = None
        self._lock = threading.Lock()

    def read(self, now: float) -> tuple[metrics.State, dict[str, int]] | None:
        """(everything summed, processes up by component) at the monotonic `now`; None while Redis is away."""
        with self._lock:
            try:
                return self._read(now)
            except (redis.RedisError, OSError) as e:
                log.debug("Redis cannot be reached: %s", e)
                self._reached_at = None
                return None

    def nodes(self, wall: float) -> metrics.State | None:
        """What nodes told of themselves; None while Redis is away."""
        try:
            raw: dict[bytes, bytes] = self._client.hgetall(node_figures.KEY)  # type: ignore[assignment]
        except (redis.RedisError, OSError) as e:
            log.debug("Redis cannot be reached: %s", e)
            return None
        return node_figures.gauges(node_figures.read(raw, wall))

    def _read(self, now: float) -> tuple[metrics.State, dict[str, int]]:
        own = (metrics.DEAD.encode(), metrics.FLEET.encode())
        names = [k for k in self._client.scan_iter(f"{metrics.PREFIX}*", count=500) if k not in own]
        values: list[bytes | None] = self._client.mget([*names, *own])  # type: ignore[assignment]
        *processes, dead_data, fleet_data = values
        if self._reached_at is None:  # it was away: give everybody time to come back before calling them dead
            self._seen = {name: (data, now) for name, (data, _) in self._seen.items()}
        self._reached_at = now
        living: list[metrics.State] = []
        up: dict[str, int] = {}
        dead = _state(dead_data)
        seen: dict[bytes, tuple[bytes, float]] = {}
        for name, data in zip(names, processes, strict=True):
            state = _state(data)
            if data is None or state is None:
                continue
            before, since = self._seen.get(name, (b"", now))
            since = since if before == data else now
            if now - since > DEAD_S:
                dead = self._fold(name, data, state, dead)
                continue
            seen[name] = (data, since)
            fresh = now - since <= UP_S
            if not fresh:
                state.gauges = []
            living.append(state)
            up[state.component] = up.get(state.component, 0) + fresh
        self._seen = seen
        fleet = _state(fleet_data)
        if fleet is not None and time.time() - fleet.at <= metrics.FLEET_STALE_S:
            living.append(fleet)
        return metrics.merge([*living, *([dead] if dead is not None else [])]), up

    def _fold(self, name: bytes, data: bytes, state: metrics.State, dead: metrics.State | None) -> metrics.State:
        state.gauges = []
        state.counters = [c for c in state.counters if c[0] not in series.PASSING]
        folded = metrics.merge([s for s in (dead, state) if s is not None])
        self._client.eval(_FOLD, 2, name, metrics.DEAD, data, metrics.encode(folded))
        return folded


def _state(data: bytes | None) -> metrics.State | None:
    try:
        return metrics.decode(data) if data is not None else None
    except msgspec.MsgspecError:
        return None


class Exposition(Collector):
    """One scrape."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        found = self._figures.read(time.monotonic())
        reached = GaugeMetricFamily(series.REDIS_UP.name, series.REDIS_UP.help)
        reached.add_metric([], 0.0 if found is None else 1.0)
        yield reached
        if found is None:
            return
        merged, up = found
        running = GaugeMetricFamily(series.UP.name, series.UP.help, labels=series.UP.labels)
        for component, count in sorted(up.items()):
            running.add_metric([component], count)
        yield running
        yield from _families(merged)
        of_nodes = self._figures.nodes(time.time())
        if of_nodes is not None:
            yield from _families(of_nodes)


def _families(state: metrics.State) -> Iterator[Metric]:
    families: dict[str, Any] = {}
    for name, labels, value in (*state.counters, *state.gauges):
        if (family := _family(families, name, labels)) is not None:
            family.add_metric(labels, value)
    for name, labels, values in state.histograms:
        family = _family(families, name, labels)
        metric = series.BY_NAME.get(name)
        if family is None or metric is None or len(values) != len(metric.buckets) + 2:
            continue  # of a version with other buckets
        total, buckets = 0.0, []
        for bound, count in zip((*map(str, metric.buckets), "+Inf"), values[1:], strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric(labels, buckets, values[0])
    yield from families.values()


def _family(families: dict[str, Any], name: str, labels: list[str]) -> Any:
    """None for what this version does not know."""
    metric = series.BY_NAME.get(name)
    if metric is None or len(labels) != len(metric.labels):
        return None
    if name not in families:
        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        families[name] = kinds[metric.kind](name, metric.help, labels=metric.labels)
    return families[name]


def _handler(registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, exposition.CONTENT_TYPE_LATEST, exposition.generate_latest(registry))
            elif path == "/health":
                self._answer(200, "text/plain", b"ok\n")
            else:
                self._answer(404, "text/plain", b"metrics are at /metrics\n")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            log.debug(format, *args)

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, sock: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(sock.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock


def _listener(this: machine.Machine) -> socket.socket:
    descriptor = os.environ.get("LLMGW_LISTEN_FD")
    if descriptor:
        return socket.socket(fileno=int(descriptor))
    family = socket.AF_INET6 if ":" in this.host else socket.AF_INET
    try:
        return socket.create_server((this.host, this.metrics_port), family=family)
    except OSError as e:
        raise SystemExit(
            f"llmgw: cannot listen on {this.host} port {this.metrics_port} ({e.strerror}): set METRICS_PORT"
        ) from None


def main() -> None:
    this = machine.require()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    client = redis.Redis.from_url(this.redis_url, socket_connect_timeout=2, socket_timeout=5)
    figures = Figures(client)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exposition(figures))
    sock = _listener(this)
    sock.setblocking(True)
    server = Server(sock, _handler(registry))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not stop.wait(metrics.PUSH_S):
        figures.read(time.monotonic())  # watched between scrapes too, or a rare one could not tell the dead
    server.shutdown()


if __name__ == "__main__":
    main()
