"""Connections to one address that are kept from one exchange to the next."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from gateway.edge.again import Again
from gateway.edge.upstream import Connection

IDLE_S = 4.0
"""How long a kept connection may rest: below the five seconds after which engines close theirs."""
MOST_IDLE = 64
"""Kept connections a pool."""
LOOK_S = 2.0
"""Between two looks whether somebody is left at the other ends."""


class Pool:
    """Kept connections to one address: TCP, TLS (the certificate must be `host`'s), or a unix socket."""

    def __init__(
        self,
        host: str = "",
        port: int = 0,
        path: Path | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        idle_s: float = IDLE_S,
        least_connect_s: float = 0.0,
    ) -> None:
        self.host, self.port, self.path = host, port, path
        self._tls, self._idle_s, self._least_connect_s = tls, idle_s, least_connect_s
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._retired = False
        self.again: Again[list[tuple[bytes, bytes]]] = Again()
        """The head of an answer."""
        self._looked_at = 0.0

    def take(self, now: float) -> Connection | None:
        """A kept connection that has not rested too long; None when there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now - connection.idle_since < self._idle_s:
                return connection
            connection.abort()
        return None

    async def connect(self, timeout_s: float) -> Connection:
        """A new connection; raises `OSError` (of which `ssl.SSLError` is one) or `TimeoutError`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(max(timeout_s, self._least_connect_s)):
            if self.path is not None:
                _, connection = await loop.create_unix_connection(lambda: Connection(loop, self), str(self.path))
            else:
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self), self.host, self.port, ssl=self._tls
                )
                connection.watch()
        self._open.add(connection)
        return connection

    def keep(self, connection: Connection) -> None:
        if self._retired or len(self._idle) >= MOST_IDLE:
            connection.abort()
            return
        connection.rests()
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    @property
    def open(self) -> bool:
        """Whether any connection is left."""
        return bool(self._open)

    def sweep(self, now: float) -> None:
        """Close what has rested too long, and what is in use although nobody is left at its other end."""
        for connection in [c for c in self._idle if now - c.idle_since >= self._idle_s]:
            self._idle.remove(connection)
            connection.abort()
        if self.path is None and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            for connection in list(self._open):
                connection.look()

    def retire(self) -> None:
        """Its replica is gone: no connection to it is used again; exchanges under way end by themselves."""
        self._retired = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
