"""The edge's ASGI callable: the inference path, health, and the way to web for everything else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from secrets import randbits
from typing import Any

import msgspec
import redis.asyncio as redis
from redis.exceptions import RedisError

from gateway.core import errors, ids
from gateway.core import request as requests
from gateway.core.snapshot import PARTS, ModelEntry
from gateway.edge import listing, others, tracing
from gateway.edge import live as live_figures
from gateway.edge.asgi import AsgiClient, Receive, Scope, Send
from gateway.edge.callers import Callers
from gateway.edge.client import Client, ClientLeft
from gateway.edge.demand import Demands
from gateway.edge.engine_metrics import EngineMetrics
from gateway.edge.exchange import Exchange
from gateway.edge.external import Externals
from gateway.edge.figures import EdgeFigures
from gateway.edge.kept import Keeper
from gateway.edge.ledger.ledger import Ledger
from gateway.edge.ledger.till import Till
from gateway.edge.passthrough import Passthrough
from gateway.edge.queue import Doors
from gateway.edge.replicas import Fleet
from gateway.edge.reuse import Answers
from gateway.edge.shared import SharedAnswers
from gateway.edge.snapshots import Snapshots
from gateway.edge.spool import Spool
from llmgw import metrics, secrets
from llmgw.demand import CHANNEL, EXPIRES_S
from llmgw.fold import fold
from llmgw.machine import Machine

log = logging.getLogger(__name__)
_JSON = (b"content-type", b"application/json")


class Edge:
    """One process's edge. `start` before the first request, `stop` after the last."""

    def __init__(self, machine: Machine, edge_id: str, compiled: bool = False) -> None:
        self.id = edge_id
        self.form = "compiled" if compiled else "interpreted"
        self.callers = Callers(secrets.read_or_make(machine.secrets_dir, "chat"))
        self.fleet = Fleet(secrets.read_or_make(machine.secrets_dir, "engine"))
        ours = (machine.secrets_dir, machine.pki_dir)
        self.externals = Externals(self.fleet, ours, machine.ca_file)
        self.spool = Spool(machine.spool_dir, edge_id)
        self.keeper = Keeper(machine.spool_dir, edge_id)
        self.others = others.Others(edge_id, self.fleet)
        self.doors = Doors(self)
        self.live = live_figures.Live()
        self.metrics = EdgeFigures()
        self.tracing = tracing.configured(machine, edge_id)
        self.ledger = Ledger(machine.redis_url, edge_id, self.metrics.figures)
        self.till = Till(self.ledger, self.metrics.figures, lambda: self.others.edges)
        self.passthrough = Passthrough(machine)
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # from `start`
        self._redis = redis.Redis.from_url(machine.redis_url, socket_connect_timeout=2, health_check_interval=10)
        self.snapshots = Snapshots(self._redis, machine.snapshot_dir, self._changed)
        self.answers = Answers(self, SharedAnswers(self._redis))
        self.demands = Demands(self, self._redis)
        self._names: dict[str, ModelEntry] = {}
        self._pusher = metrics.Pusher("edge", self.metrics.figures)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.spool.schedule_with(self.loop.call_soon)
        self.snapshots.load_from_disk()
        runs = (
            self.snapshots.run(),
            self.ledger.run(),
            self._each_second(),
            EngineMetrics(self.fleet).run(),
            self.externals.run(),
        )
        self._tasks = [self.loop.create_task(run) for run in runs]
        for task in self._tasks:
            task.add_done_callback(_fatal)

    async def stop(self) -> None:
        await self.ledger.close()
        for task in self._tasks:
            task.remove_done_callback(_fatal)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._push()
        with contextlib.suppress(RedisError, OSError):
            await self._redis.hdel(others.KEY, self.id)
        self.spool.close()
        await asyncio.to_thread(self.keeper.close)
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)
        await self._redis.aclose()

    def model(self, asked: str) -> ModelEntry | None:
        """By name or alias, in whatever case."""
        return self._names.get(asked) or self._names.get(fold(asked))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = AsgiClient(scope, receive, send)
        path = scope["path"]
        endpoint = requests.PATHS.get(path)
        if endpoint is not None:
            await self.infer(client, endpoint)
        elif path == "/v1" or path.startswith("/v1/"):
            await self._other(client, path)
        elif path == "/health":
            await client.whole(200, [(b"content-type", b"text/plain")], b"ok\n")
        elif path == "/ready":
            await self._ready(client)
        else:
            await self.passthrough.serve(client, self.snapshots.current.policies.max_body_bytes)

    async def infer(self, client: Client, endpoint: str) -> None:
        """One request of the inference path."""
        await Exchange(self, client, endpoint).run()

    async def _other(self, client: Client, path: str) -> None:
        """The rest of /v1: the list of models, and what there is not."""
        now = time.time()
        request_id = ids.request_id(int(now * 1000), randbits(80))
        headers = [(b"x-request-id", request_id.encode())]
        try:
            body = self._models(client, path, now)
        except errors.GatewayError as e:
            await client.refuse(e, headers)
        except ClientLeft:
            return
        else:
            await client.whole(200, [_JSON, *headers], body)

    def _models(self, client: Client, path: str, now: float) -> bytes:
        method = client.method
        if path != listing.PATH and not path.startswith(f"{listing.PATH}/"):
            raise errors.UnknownPath(f"there is no {method} {path[:200]} here")
        if method not in ("GET", "HEAD"):
            raise errors.WrongMethod(f"{path[:200]} takes GET, not {method}", "GET")
        snapshot = self.snapshots.current
        who = self.callers.of(client, snapshot.tenancy, now)
        return listing.answer(path, who, snapshot, self.model(listing.asked(path)))

    async def _ready(self, client: Client) -> None:
        missing = self.snapshots.missing
        current = self.snapshots.current
        versions = {part: getattr(current, part).version for part in PARTS}
        body = msgspec.json.encode({"ready": not missing, "missing": missing, "versions": versions})
        await client.whole(503 if missing else 200, [_JSON], body)

    def _changed(self, part: str) -> None:
        snapshot = self.snapshots.current
        if part == "endpoints":
            self.fleet.update(snapshot.endpoints)
            self.demands.left()
        elif part == "catalog":
            names: dict[str, ModelEntry] = {}
            for entry in snapshot.catalog.models.values():
                names.update({fold(alias): entry for alias in entry.aliases})
            names.update({fold(name): entry for name, entry in snapshot.catalog.models.items()})
            self._names = {**names, **snapshot.catalog.models}
            self.externals.update(snapshot.catalog)
        elif part == "policies":
            self.answers.changed(snapshot.policies)
        self.doors.look()

    async def _each_second(self) -> None:
        while True:
            self.spool.flush()
            now = self.loop.time()
            self.fleet.sweep(now)
            self.passthrough.sweep(now)
            self.answers.sweep(time.time())
            self.doors.look()
            await self._push()
            await asyncio.sleep(metrics.PUSH_S)

    async def _push(self) -> None:
        """Live figures and metrics to Redis; without it they are absent there."""
        self.metrics.gauge(self)
        key, data, state = self._pusher.next()
        document = msgspec.json.encode(
            self.live.document(self.loop.time(), time.time(), self.externals.report(time.monotonic()))
        )
        try:
            async with asyncio.timeout(2), self._redis.pipeline(transaction=False) as pipe:
                pipe.set(key, data)
                pipe.set(live_figures.PREFIX + self.id, document, ex=live_figures.EXPIRES_S)
                pipe.set(self.demands.key, self.demands.word(), ex=EXPIRES_S)
                if self.demands.news():
                    pipe.publish(CHANNEL, self.id)
                pipe.hset(others.KEY, self.id, self.others.mine(self.doors.weights()))
                pipe.hgetall(others.KEY)
                words = (await pipe.execute())[-1]
            self._pusher.pushed(state)
            gone = self.others.heard(words, self.loop.time())
            if gone:
                await self._redis.hdel(others.KEY, *gone)
        except (RedisError, OSError):
            self.others.silent()
            log.debug("figures could not be pushed")


def _fatal(task: asyncio.Task[Any]) -> None:
    """A background task must not die unseen: better a restart by the supervisor than a stale edge."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("a background task of the edge failed", exc_info=task.exception())
        raise SystemExit(1)
