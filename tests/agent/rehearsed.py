"""A machine that is only pretended: processes without processes, a network without sockets, a link in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from agent.core.holders import InUse
from agent.core.last_words import Exit
from agent.core.proc import MARKER, Mark
from agent.core.readiness import Response
from agent.node.discovery import Moving
from agent.node.host import Identity, Launch, Marked
from agent.wire.codec import decode, encode
from agent.wire.facts import NodeFacts
from agent.wire.messages import Message


@dataclass
class Pretended:
    identity: Identity
    mark: Mark
    port: int
    model: str
    over: asyncio.Future[Exit] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def ended(self) -> Exit:
        return await asyncio.shield(self.over)


class PretendedHost:
    """See `agent.node.host.Host`. Engines are ready `load_s` after their start."""

    def __init__(self, load_s: float = 0.05) -> None:
        self.load_s = load_s
        self.processes: dict[Identity, Pretended] = {}
        self._pids = 1000

    def boot_id(self) -> str:
        return "boot"

    def spawn(self, launch: Launch) -> Pretended:
        self._pids += 1
        home, shard, name = launch.env[MARKER].split("/")
        port, model = (launch.argv[launch.argv.index(f) + 1] for f in ("--port", "--alias"))
        identity = Identity(self._pids, int(asyncio.get_running_loop().time() * 1000), "boot")
        self.processes[identity] = Pretended(identity, Mark(home, shard, name), int(port), model)
        return self.processes[identity]

    def find(self, identity: Identity) -> Pretended | None:
        return self.processes.get(identity)

    def age_s(self, identity: Identity) -> float:
        return asyncio.get_running_loop().time() - identity.start_ticks / 1000

    def marked(self, home_id: str) -> tuple[Marked, ...]:
        return tuple(Marked(p.identity, p.mark) for p in self.processes.values() if p.mark.home_id == home_id)

    def members(self, groups: Mapping[str, Iterable[Identity]]) -> dict[str, tuple[Identity, ...]]:
        return {name: tuple(i for i in leaders if i in self.processes) for name, leaders in groups.items()}

    def signal(self, identity: Identity, number: int) -> bool:
        process = self.processes.pop(identity, None)
        if process is not None:
            process.over.set_result(Exit(signal=number))
        return process is not None

    def resident_bytes(self, processes: Iterable[Identity]) -> int | None:
        return 1_000_000 * len(list(processes))

    def listens(self, port: int, processes: Iterable[Identity]) -> bool | None:
        return any(self.processes[i].port == port for i in processes if i in self.processes)

    def device_names(self, devices: Collection[int]) -> tuple[str, ...] | None:
        return tuple(map(str, devices))

    def device_memory(self, devices: Collection[int], processes: Iterable[Identity]) -> Mapping[int, int | None] | None:
        return None

    def device_use(self, devices: Collection[int]) -> tuple[InUse, ...] | None:
        return None

    def port_problem(self, host: str, port: int) -> str | None:
        return None

    async def get(self, host: str, port: int, path: str, key: str) -> Response | None:
        for process in self.processes.values():
            if process.port == port and self.age_s(process.identity) >= self.load_s:
                return Response(200, json.dumps({"data": [{"id": process.model}]}).encode())
        return None

    async def connects(self, host: str, port: int) -> bool | None:
        return any(p.port == port for p in self.processes.values())


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
