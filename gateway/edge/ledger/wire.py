"""One connection to Redis for the ledger alone: commands in, answers in order, no command waits for another's.

redis-py costs nine times as much a call (docs/performance.md); what is needed of the protocol is this.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import hiredis
from redis.connection import parse_url

Answer = Callable[[Any], None]
CONNECT_S = 2.0


class WireError(Exception):
    """Redis refused a command, or what it said was none of its protocol."""


class Wire(asyncio.Protocol):
    """`lost` is called once when the connection is gone, however that came."""

    def __init__(self, lost: Callable[[Wire], None]) -> None:
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._lost = lost
        self._waiting: list[Answer] = []
        self._next = 0

    def send(self, answer: Answer, *command: str | bytes | int) -> None:
        """`answer` gets the reply: bytes, integers, lists of them, or a `hiredis.ReplyError`."""
        self._waiting.append(answer)
        if self._transport is not None:
            self._transport.write(hiredis.pack_command(command))  # type: ignore[arg-type]

    async def ask(self, *command: str | bytes | int) -> Any:
        """One command, waited for; raises `WireError`, `ConnectionError`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(reply: Any) -> None:
            if not future.done():
                future.set_result(reply)

        self.send(answered, *command)
        reply = await future
        if isinstance(reply, BaseException):
            raise reply if isinstance(reply, ConnectionError) else WireError(str(reply))
        return reply

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                answer = self._waiting[self._next]
                self._next += 1
                if self._next > 512:
                    del self._waiting[: self._next]
                    self._next = 0
                answer(reply)
        except (hiredis.ProtocolError, IndexError):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        waiting, self._waiting = self._waiting[self._next :], []
        self._next = 0
        self._lost(self)
        for answer in waiting:
            answer(ConnectionError("the connection to Redis is gone"))


async def connect(url: str, lost: Callable[[Wire], None]) -> Wire:
    """To the server that `url` names, signed in, in its database; raises `OSError`, `TimeoutError`, `WireError`."""
    loop = asyncio.get_running_loop()
    where: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    async with asyncio.timeout(CONNECT_S):
        if path := where.get("path"):
            _, wire = await loop.create_unix_connection(lambda: Wire(lost), path)
        else:
            tls = url.startswith("rediss:")
            context = ssl.create_default_context(cafile=where.get("ssl_ca_certs")) if tls else None
            host, port = where.get("host", "localhost"), where.get("port", 6379)
            _, wire = await loop.create_connection(lambda: Wire(lost), host, port, ssl=context)
        try:
            if password := where.get("password"):
                await wire.ask("AUTH", *filter(None, (where.get("username"), password)))
            if database := where.get("db"):
                await wire.ask("SELECT", database)
        except BaseException:
            wire.close()
            raise
    return wire
