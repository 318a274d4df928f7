"""A client behind an ASGI server: every path but the inference path, and that too where the edge runs inside another
server (`llmgw.asgi`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.edge.client import BODY_TIMEOUT_S, Client, ClientLeft, Headers, too_slow

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WATCH_AFTER_S = 0.05
"""An answer that is out before costs no task; a later one is watched by a single one."""


class AsgiClient(Client):
    __slots__ = ("_finished", "_receive", "_send", "_task", "_timer", "_watcher", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope["method"], scope["path"], scope["headers"])
        self.scope, self._receive, self._send = scope, receive, send
        self._finished = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Any] | None = None

    async def piece(self) -> tuple[bytes, bool]:
        task = asyncio.current_task()
        assert task is not None
        late: list[bool] = []
        timer = asyncio.get_running_loop().call_later(BODY_TIMEOUT_S, _interrupt, task, late)  # a third of a timeout()
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not late:
                raise
            task.uncancel()
            raise too_slow() from None
        finally:
            timer.cancel()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        more = bool(message.get("more_body", False))
        self.body_read = not more
        return message.get("body", b""), more

    def watch(self) -> None:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start_watching)

    def unwatch(self) -> None:
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _start_watching(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._wait_until_left())

    async def _wait_until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._finished and self._task is not None:
            self.left = True
            self._task.cancel()

    async def _whole(self, status: int, headers: Headers, body: bytes, last: bool) -> None:
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        if last:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self._finished = True
        await self._send({"type": "http.response.body", "body": body})

    async def open(self, status: int, headers: Headers) -> None:
        self.opened = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def close(self, data: bytes = b"") -> None:
        self._finished = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})


def _interrupt(task: asyncio.Task[Any], late: list[bool]) -> None:
    late.append(True)
    task.cancel()
