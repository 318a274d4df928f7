"""The client's side of one request: its headers and body in, an answer out, and word of its leaving.

`Client` is what an exchange speaks to. Behind it is a connection itself (`direct`), or an ASGI server (`asgi`).
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator

from gateway.core.errors import GatewayError, TooLarge, TooSlow

Headers = list[tuple[bytes, bytes]]

BODY_TIMEOUT_S = 60.0
"""Between two pieces of a request's body."""
LINGER_S = 2.0
"""For the rest of a body that is refused."""
KEEPALIVE = b": keep-alive\n\n"


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


class Client(ABC):
    """`opened`: status and headers are out, so that an error can only be told in-band. `left`: it went away while it
    was watched. `body_read`: nothing of the request is still to come."""

    __slots__ = ("body_read", "headers", "left", "method", "named", "opened", "path")

    def __init__(self, method: str, path: str, headers: Headers, named: dict[bytes, bytes] | None = None) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.named = dict(reversed(headers)) if named is None else named
        """The first header of each name (lower case)."""
        self.opened = self.left = self.body_read = False

    def header(self, name: bytes) -> bytes | None:
        """The first of that name (lower case)."""
        return self.named.get(name)

    def at_hand(self, most: int) -> bytes | None:
        """All of the body, where it has come and is no larger than `most`."""
        return None

    async def body(self, most: int) -> bytes:
        """All of it; raises `TooLarge`, `TooSlow`, `ClientLeft`."""
        self._refuse_declared(most)
        first, more = await self.piece()
        pieces, size = [first], len(first)
        while size <= most and more:
            data, more = await self.piece()
            size += len(data)
            pieces.append(data)
        if size > most:
            raise too_large(most)
        return first if len(pieces) == 1 else b"".join(pieces)

    def _refuse_declared(self, most: int) -> None:
        declared = self.header(b"content-length")
        if declared is not None and int(declared) > most:
            raise too_large(most)

    @abstractmethod
    async def piece(self) -> tuple[bytes, bool]:
        """The next part of the body and whether there is more; raises `TooSlow`, `ClientLeft`."""

    def gone(self) -> bool:
        """Whether it left."""
        return self.left

    @abstractmethod
    def watch(self) -> None:
        """From now on cancel the calling task when the client leaves, and set `left`. The body must be read. Raises
        `ClientLeft` where that is known already."""

    @abstractmethod
    def unwatch(self) -> None: ...

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        """`whole` at once; False, and nothing is sent, where something is to be waited for."""
        return False

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """The answer in one piece."""
        last = not self.body_read and self.method not in ("GET", "HEAD") and not await self._drained()
        self.opened = True
        await self._whole(status, headers, body, last)

    @abstractmethod
    async def _whole(self, status: int, headers: Headers, body: bytes, last: bool) -> None:
        """`last`: the connection ends here, for what is left of the body must not be read as a request."""

    @abstractmethod
    async def open(self, status: int, headers: Headers) -> None: ...

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """A piece of an opened answer; waits while the client does not take it."""

    def push(self, data: bytes, framed: bytes = b"") -> bool:
        """`send` at once; False, and nothing is sent, where that is to be waited for. `framed`: the same as an HTTP
        chunk, for who sends such."""
        return False

    def passes_chunks(self) -> bool:
        """Whether `pass_on` may be asked: the answer is open, and is sent in HTTP chunks."""
        return False

    def pass_on(self, chunk: bytes) -> bool:
        """`push` of a whole HTTP chunk, as it is sent."""
        return False

    @abstractmethod
    async def close(self, data: bytes = b"") -> None:
        """The last piece."""

    async def refuse(self, error: GatewayError, headers: Headers) -> None:
        """As an answer, or as the last event of a stream that has begun."""
        if self.opened:
            await self.close(error.event())
            return
        head = [(b"content-type", b"application/json"), *error.headers(), *headers]
        await self.whole(error.answer, head, error.body())

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


@contextlib.contextmanager
def watched(client: Client) -> Iterator[None]:
    client.watch()
    try:
        yield
    finally:
        client.unwatch()


def too_slow() -> TooSlow:
    return TooSlow(f"no more of the request's body came within {BODY_TIMEOUT_S:.0f} seconds")


def too_large(most: int) -> TooLarge:
    return TooLarge(f"the request's body is larger than the limit of {most} bytes")
