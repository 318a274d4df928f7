"""A client whose answer is taken down on its way. All else is the client's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.errors import GatewayError
from gateway.edge.client import Client, Headers

if TYPE_CHECKING:
    from gateway.edge.kept import Keeping


class Overheard(Client):
    __slots__ = ("_client", "_keeping")

    def __init__(self, client: Client, keeping: Keeping) -> None:
        super().__init__(client.method, client.path, client.headers, client.named)
        self.opened, self.body_read = client.opened, client.body_read
        self._client, self._keeping = client, keeping

    async def piece(self) -> tuple[bytes, bool]:
        return await self._client.piece()

    def gone(self) -> bool:
        return self._client.gone()

    def watch(self) -> None:
        self._client.watch()

    def unwatch(self) -> None:
        self._client.unwatch()

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        if not self._client.answer(status, headers, body):
            return False
        self.opened = True
        self._keeping.hear(body)
        return True

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._keeping.hear(body)
        self.opened = True
        await self._client.whole(status, headers, body)

    async def _whole(self, status: int, headers: Headers, body: bytes, last: bool) -> None:
        raise NotImplementedError("`whole` is the client's own")

    async def open(self, status: int, headers: Headers) -> None:
        self.opened = True
        await self._client.open(status, headers)

    async def send(self, data: bytes) -> None:
        self._keeping.hear(data)
        await self._client.send(data)

    def push(self, data: bytes, framed: bytes = b"") -> bool:
        if not self._client.push(data, framed):
            return False
        self._keeping.hear(data)
        return True

    async def close(self, data: bytes = b"") -> None:
        self._keeping.hear(data)
        await self._client.close(data)

    async def refuse(self, error: GatewayError, headers: Headers) -> None:
        self._keeping.hear(error.event() if self.opened else error.body())
        self.opened = True
        await self._client.refuse(error, headers)
