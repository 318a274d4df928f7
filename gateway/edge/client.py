"""The client's side of one request: its headers and body in, an answer out, and word of its leaving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.core.errors import GatewayError, TooLarge, TooSlow

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

WATCH_AFTER_S = 0.05
"""An answer that is out before costs no task; a later one is watched by a single one."""
BODY_TIMEOUT_S = 60.0
"""Between two pieces of a request's body."""
LINGER_S = 2.0
"""For the rest of a body that is refused."""
KEEPALIVE = b": keep-alive\n\n"


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


class Client:
    """`opened`: status and headers are out, so that an error can only be told in-band."""

    __slots__ = (
        "_finished",
        "_receive",
        "_send",
        "_task",
        "_timer",
        "_watcher",
        "body_read",
        "left",
        "opened",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.opened = self.left = self.body_read = self._finished = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Any] | None = None

    def header(self, name: bytes) -> bytes | None:
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return None

    async def body(self, most: int) -> bytes:
        """All of it; raises `TooLarge`, `TooSlow`, `ClientLeft`."""
        declared = self.header(b"content-length")
        if declared is not None and int(declared) > most:
            raise _too_large(most)
        first, more = await self.piece()
        pieces, size = [first], len(first)
        if size > most:
            raise _too_large(most)
        if not more:
            return first
        while more:
            data, more = await self.piece()
            size += len(data)
            if size > most:
                raise _too_large(most)
            pieces.append(data)
        return b"".join(pieces)

    async def piece(self) -> tuple[bytes, bool]:
        """The next part of the body and whether there is more; raises `TooSlow`, `ClientLeft`."""
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
            raise TooSlow(f"no more of the request's body came within {BODY_TIMEOUT_S:.0f} seconds") from None
        finally:
            timer.cancel()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        more = bool(message.get("more_body", False))
        self.body_read = not more
        return message.get("body", b""), more

    def watch(self) -> None:
        """From now on cancel the calling task when the client leaves, and set `left`. The body must be read."""
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

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """The answer in one piece."""
        if not self.body_read and self.scope["method"] not in ("GET", "HEAD") and not await self._drained():
            headers = [*headers, (b"connection", b"close")]  # what is left of the body must not be read as a request
        self.opened = True
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, (b"content-length", b"%d" % len(body))],
            }
        )
        self._finished = True
        await self._send({"type": "http.response.body", "body": body})

    async def _drained(self) -> bool:
        """Whether the rest of the body is out of the way: a client that is still sending would meet a reset
        before it read the answer. One that waits for `100 Continue` is not asked to send what nobody reads."""
        if self.header(b"expect") is not None:
            return False
        try:
            async with asyncio.timeout(LINGER_S):
                while not self.body_read:
                    await self.piece()
        except (TimeoutError, TooSlow, ClientLeft):
            return False
        return True

    async def open(self, status: int, headers: Headers) -> None:
        self.opened = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes) -> None:
        """A piece of an opened answer; waits while the client does not take it."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def close(self, data: bytes = b"") -> None:
        """The last piece."""
        self._finished = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def refuse(self, error: GatewayError, headers: Headers) -> None:
        """As an answer, or as the last event of a stream that has begun."""
        if self.opened:
            await self.close(error.event())
            return
        head = [(b"content-type", b"application/json"), *error.headers(), *headers]
        await self.whole(error.answer, head, error.body())


@contextlib.contextmanager
def watched(client: Client) -> Any:
    client.watch()
    try:
        yield
    finally:
        client.unwatch()


def _interrupt(task: asyncio.Task[Any], late: list[bool]) -> None:
    late.append(True)
    task.cancel()


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the request's body is larger than the limit of {most} bytes")
