"""A scripted agent: a real websocket with a real certificate, and nothing behind it."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect

from agent.wire import codec
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.messages import Desired, Heartbeat, Hello, Message, Refused, Report, Settings, Welcome
from agent.wire.shard import ShardObserved, ShardSpec, ShardState
from fleet.actions import certificates

M = TypeVar("M", bound=Message)
GIB = 1024**3
FACTS = NodeFacts(
    hostname="host",
    address="127.0.0.1",
    os="Debian 12",
    arch="x86_64",
    boot_id="boot-1",
    cpu_count=8,
    memory_bytes=32 * GIB,
    memory_free_bytes=30 * GIB,
    disk_free_bytes=100 * GIB,
    agent_version="0.1.0",
    vector_extensions=("avx", "avx2"),
    gpus=(),
    engines=(EngineFacts("llamacpp", version="1"),),
)


@dataclass(frozen=True)
class Papers:
    """A node's certificate files."""

    node_id: str
    folder: Path

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=self.folder / "ca.pem")
        made.load_cert_chain(self.folder / "cert.pem", self.folder / "key.pem")
        return made


def papers(node_id: str, folder: Path) -> Papers:
    certificates.issue(node_id=node_id, out=folder, actor="test")
    return Papers(node_id, folder)


class Agent:
    """`async with Agent(papers, port) as agent`: connected, nothing said yet."""

    def __init__(self, papers: Papers, port: int, instance: str = "i-1", node_id: str = "") -> None:
        self.papers, self.port, self.instance = papers, port, instance
        self.node_id = node_id or papers.node_id
        self.shards: dict[str, ShardObserved] = {}
        self.desired: Desired | None = None
        self.welcome: Welcome | None = None
        self.refused: Refused | None = None
        self.told: Settings | None = None
        self.facts = FACTS

    async def __aenter__(self) -> Agent:
        url = f"wss://127.0.0.1:{self.port}/agent/link"
        self.socket: ClientConnection = await connect(
            url, ssl=self.papers.context(), max_size=codec.MAX_BYTES, compression=None, open_timeout=5
        )
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.socket.close()

    async def say(self, message: Message) -> None:
        await self.socket.send(codec.encode(message))

    async def hear(self, timeout_s: float = 5.0) -> Message:
        message = codec.decode(await asyncio.wait_for(self.socket.recv(), timeout_s))
        match message:
            case Desired():
                self.desired = message
            case Refused():
                self.refused = message
            case Settings():
                self.told = message
        return message

    async def expect(self, kind: type[M], timeout_s: float = 5.0) -> M:
        """The next message of that type; others are passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            message = await self.hear(max(deadline - time.monotonic(), 0.01))
            if isinstance(message, kind):
                return message

    async def hello(self, **fields: Any) -> Message:
        await self.say(Hello(self.node_id, instance=self.instance, agent_version="0.1.0", **fields))
        return await self.hear()

    async def join(self, store_id: str | None = None, generation: int | None = None) -> Desired:
        """Hello, welcome, report, and the first desired state."""
        welcome = await self.hello()
        assert isinstance(welcome, Welcome), welcome
        self.welcome = welcome
        await self.say(Report(self.facts, tuple(self.shards.values()), generation, store_id or welcome.store_id))
        return await self.expect(Desired)

    def run(self, spec: ShardSpec, state: ShardState, **fields: Any) -> None:
        """As an agent that runs `spec` would see it from now on."""
        self.shards[spec.shard_id] = replace(
            ShardObserved(
                shard_id=spec.shard_id,
                state=state,
                incarnation=spec.incarnation,
                fingerprint=spec.fingerprint,
                pid=4242,
                address="127.0.0.1",
                port=spec.port,
                replica_id=spec.replica_id,
                model=spec.model,
            ),
            **fields,
        )

    async def beat(self) -> None:
        generation = self.desired.generation if self.desired else None
        await self.say(Heartbeat(tuple(self.shards.values()), generation, memory_free_bytes=20 * GIB, load_1m=0.5))
