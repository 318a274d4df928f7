"""The agent's real link with troubles on the way: cut, silent, slow, or in the words of an older agent or a liar."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.node.link import Connection, Link, LinkLost
from agent.wire.messages import Message

Words = Callable[[Message], Message]


@dataclass
class Trouble:
    """What is wrong with the way to the control plane now."""

    cut: bool = False
    """Connections break, and none comes about."""
    silent: asyncio.Event | None = None
    """Nothing passes, either way, and nobody is told; set when it passes again."""
    delay_s: float = 0.0
    """Of each message, either way."""
    words: list[Words] = field(default_factory=list)
    """What changes the messages that go out."""


class TroubledLink:
    """See `agent.node.link.Link`."""

    def __init__(self, link: Link, trouble: Trouble) -> None:
        self._link, self._trouble = link, trouble
        self._connection: Connection | None = None

    async def dial(self) -> Connection:
        if self._trouble.silent is not None:
            await asyncio.wait_for(self._trouble.silent.wait(), 10)
        if self._trouble.cut:
            raise LinkLost("the network is cut (pretended)")
        made = await self._link.dial()
        self._connection = made
        return _Troubled(made, self._trouble)

    async def cut(self) -> None:
        """Breaks the connection that there is."""
        if self._connection is not None:
            await self._connection.close()


class _Troubled:
    def __init__(self, inner: Connection, trouble: Trouble) -> None:
        self._inner, self._trouble = inner, trouble

    @property
    def local_address(self) -> str | None:
        return self._inner.local_address

    async def send(self, message: Message) -> None:
        for words in tuple(self._trouble.words):
            message = words(message)
        await self._way()
        await self._inner.send(message)

    async def receive(self) -> Message:
        found = await self._inner.receive()
        await self._way()
        return found

    async def close(self) -> None:
        await self._inner.close()

    async def _way(self) -> None:
        if self._trouble.cut:
            raise LinkLost("the network is cut (pretended)")
        while self._trouble.silent is not None:
            await self._trouble.silent.wait()
        if self._trouble.delay_s:
            await asyncio.sleep(self._trouble.delay_s)
