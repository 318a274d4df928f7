"""A small control plane for the agent's tests: a real websocket server that wants client certificates.

It says what a test scripts and keeps what agents said; the product's own is tested with its own agent elsewhere.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from socket import socket as Socket
from typing import Any, TypeVar

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from agent.wire.codec import decode, encode
from agent.wire.messages import (
    Answer,
    Certified,
    Certify,
    Desired,
    Heartbeat,
    Hello,
    Message,
    Question,
    Refused,
    Report,
    Welcome,
)
from agent.wire.shard import ShardObserved, ShardSpec, ShardState
from tests.agent.pki import Authority

M = TypeVar("M", bound=Message)


class Control:
    """Start with `async with`. `refuse` makes it refuse every hello."""

    def __init__(
        self, authority: Authority, *, host: str = "127.0.0.1", port: int = 0, heartbeat_s: float = 0.3
    ) -> None:
        self.authority = authority
        self.host = host
        self.port = port
        self.heartbeat_s = heartbeat_s
        self.refuse: Refused | None = None
        self.certify: Callable[[str], Certified] | None = None
        """Answers a node that asks for its next certificate."""
        self.said: list[Message] = []
        self.sockets: list[ServerConnection] = []
        self.listener: Socket | None = None
        """On which it begins to answer; else one of its own."""
        self.desired: Desired | None = None
        self._server: Server | None = None
        self._generation = 0
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"wss://{self.host}:{self.port}/agent/link"

    async def __aenter__(self) -> Control:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = self.authority.server()
        context.load_cert_chain(pair.cert, pair.key)
        context.load_verify_locations(self.authority.pem)
        context.verify_mode = ssl.CERT_REQUIRED
        where: dict[str, Any] = {"sock": self.listener} if self.listener else {"host": self.host, "port": self.port}
        self._server = await serve(self._talk, **where, ssl=context, compression=None, close_timeout=1)
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def want(self, *specs: ShardSpec, store: str = "store-1", term: int = 1, synced: bool = True) -> None:
        """The new desired state, sent to every agent that is connected, now or later."""
        self._generation += 1
        self.desired = Desired(store, term, self._generation, specs, synced)
        for socket in self.sockets:
            await self._send(socket, self.desired)

    async def say(self, message: Message | bytes) -> None:
        for socket in self.sockets:
            await self._send(socket, message)

    async def ask(self, kind: str, **args: object) -> Answer:
        await self.say(Question("q1", kind, dict(args)))
        return await self.heard(lambda m: m if isinstance(m, Answer) else None)

    async def heard(self, found: Callable[[Message], M | None], timeout_s: float = 15.0) -> M:
        """The first message, said before or to come, that `found` makes something of; it is taken out."""
        async with asyncio.timeout(timeout_s):
            while True:
                for message in list(self.said):
                    result = found(message)
                    if result is not None:
                        self.said.remove(message)
                        return result
                self._news.clear()
                await self._news.wait()

    async def shard(
        self, shard_id: str, *states: ShardState, incarnation: int = 1, timeout_s: float = 15.0
    ) -> ShardObserved:
        """What a node observes of a shard, as soon as it is in one of `states`."""
        last: list[ShardObserved] = []

        def found(message: Message) -> ShardObserved | None:
            if isinstance(message, Heartbeat | Report):
                for s in message.shards:
                    if s.shard_id == shard_id and s.incarnation == incarnation:
                        last[:] = [s]
                        if s.state in states:
                            return s
            return None

        try:
            return await self.heard(found, timeout_s)  # type: ignore[type-var, return-value, arg-type]
        except TimeoutError:
            raise AssertionError(f"{shard_id} did not become {states}; last: {last}") from None

    async def _talk(self, socket: ServerConnection) -> None:
        try:
            hello = decode(await socket.recv())
            assert isinstance(hello, Hello)
            self._hear(hello)
            if self.refuse is not None:
                await self._send(socket, self.refuse)
                return
            await self._send(socket, Welcome("store-1", heartbeat_s=self.heartbeat_s))
            self.sockets.append(socket)
            if self.desired is not None:
                await self._send(socket, self.desired)
            async for data in socket:
                message = decode(data)
                self._hear(message)
                if isinstance(message, Certify) and self.certify is not None:
                    await self._send(socket, self.certify(message.csr))
        except ConnectionClosed:
            pass
        finally:
            if socket in self.sockets:
                self.sockets.remove(socket)

    def _hear(self, message: Message) -> None:
        self.said.append(message)
        del self.said[:-400]
        self._news.set()

    async def _send(self, socket: ServerConnection, message: Message | bytes) -> None:
        await socket.send(message.decode() if isinstance(message, bytes) else encode(message).decode())
