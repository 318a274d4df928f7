"""What an agent of a pretended machine (`agent.rehearsal.host`) is given in tests: a fleet of one, a link in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from agent.node.discovery import Moving
from agent.rehearsal.figures import Weights
from agent.wire.codec import decode, encode
from agent.wire.facts import NodeFacts
from agent.wire.messages import Message


class Alone:
    """The fleet of machines that know of no other."""

    load_speed = 1000.0
    answer_speed = 1000.0

    def __init__(self) -> None:
        self.models: Mapping[str, Weights] = {}
        self.twice: list[str] = []

    def doubled(self, what: str) -> None:
        self.twice.append(what)

    def answered(self) -> None:
        return


class Pipe:
    """Both ends of a link: the agent's as a `Connection`, the control plane's as `say` and `hear`."""

    local_address = "10.0.0.1"

    def __init__(self) -> None:
        self._up: asyncio.Queue[bytes] = asyncio.Queue()
        self._down: asyncio.Queue[bytes] = asyncio.Queue()

    async def dial(self) -> Pipe:
        return self

    async def send(self, message: Message) -> None:
        await self._up.put(encode(message))

    async def receive(self) -> Message:
        return decode(await self._down.get())

    async def close(self) -> None:
        return

    async def say(self, message: Message) -> None:
        await self._down.put(encode(message))

    async def hear(self, found: Callable[[Message], bool]) -> Message:
        while True:
            message = decode(await self._up.get())
            if found(message):
                return message


class Plain:
    """Surroundings that never change."""

    def __init__(self, name: str) -> None:
        self._name = name

    def facts(self, address: str | None, own_ports: Iterable[int]) -> NodeFacts:
        return NodeFacts(hostname=self._name, address=address)

    def moving(self) -> Moving:
        return Moving(1, 1, 0.0)
