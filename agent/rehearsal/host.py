"""A pretended machine's processes: `agent.node.host.Host` without an operating system. Engines outlive the agent."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from agent.core.holders import Holder, InUse
from agent.core.last_words import Exit
from agent.core.proc import MARKER, Mark
from agent.core.readiness import Response
from agent.engine import MetricNames
from agent.engines import ENGINES
from agent.node import probe
from agent.node.host import Identity, Launch, LaunchFailed, Marked
from agent.rehearsal import figures
from agent.rehearsal.engine import PretendedEngine, out_of_memory
from agent.rehearsal.figures import Weights
from agent.rehearsal.values import SMALL
from agent.wire.facts import GpuFacts
from agent.wire.shard import ShardSpec

_ENDS_S = 0.1
"""An engine that is asked to end needs so long."""
_LEFT = 0.1
"""Of a card's memory: what vLLM and the others leave free of their own accord."""


class Surely(Protocol):
    """What a machine needs to know of the fleet that it is in."""

    load_speed: float
    answer_speed: float

    @property
    def models(self) -> Mapping[str, Weights]: ...
    def doubled(self, what: str) -> None:
        """Two engines hold one card."""
        ...

    def answered(self) -> None: ...


class PretendedHost:
    """See `Host`. `spec_of` reads a shard's record, which the agent has written before it starts a process."""

    def __init__(
        self,
        name: str,
        address: str,
        cards: tuple[GpuFacts, ...],
        fleet: Surely,
        spec_of: Callable[[str], ShardSpec | None],
    ) -> None:
        self.name, self.address, self.cards = name, address, cards
        self._fleet, self._spec_of = fleet, spec_of
        self.engines: dict[Identity, PretendedEngine] = {}
        self.behaviours: dict[str, str] = {}
        """By model: how engines that start from now on are to be."""
        self.out_of_memory: set[str] = set()
        """Models whose engines find no memory."""
        self._pids = 1000
        self._boots = 1

    def boot_id(self) -> str:
        return f"boot-{self.name}-{self._boots}"

    def spawn(self, launch: Launch) -> PretendedEngine:
        home, shard, name = launch.env[MARKER].split("/")
        spec = self._spec_of(shard)
        if spec is None:
            raise LaunchFailed(f"the record of {shard} cannot be read")
        self._pids += 1
        loop = asyncio.get_running_loop()
        identity = Identity(self._pids, int(loop.time() * 1000), self.boot_id())
        known = ENGINES.get(spec.profile.engine)
        names = known.metrics(None) if known is not None else MetricNames()
        serves = known is None or known.serves_http(spec.rank)
        listens = serves and str(spec.port) in " ".join(launch.argv)
        weights = self._fleet.models.get(spec.model, SMALL)
        ranks = max(1, spec.world_size)
        speed = figures.speed(weights, self._class_of(spec.devices), len(spec.devices) * ranks)
        self._look_for_doubles(spec, launch)
        engine = PretendedEngine(
            identity,
            Mark(home, shard, name),
            spec,
            speed,
            names,
            host=self.address,
            log=Path(launch.log),
            load_s=speed.load_s / len(spec.devices or (0,)) / ranks / self._fleet.load_speed,
            answer_speed=self._fleet.answer_speed,
            listens=listens,
            behaviour=self.behaviours.get(spec.model, "well"),
            memory_problem=self._memory_problem(spec, weights),
            answered=self._fleet.answered,
            ended=self._forget,
        )
        self.engines[identity] = engine
        return engine

    def find(self, identity: Identity) -> PretendedEngine | None:
        return self.engines.get(identity)

    def age_s(self, identity: Identity) -> float:
        """In the time of the load, which may pass faster: a start that takes minutes is asked seldom."""
        real_s = asyncio.get_running_loop().time() - identity.start_ticks / 1000
        return real_s * max(1.0, self._fleet.load_speed)

    def marked(self, home_id: str) -> tuple[Marked, ...]:
        return tuple(Marked(e.identity, e.mark) for e in self.engines.values() if e.mark.home_id == home_id)

    def members(self, groups: Mapping[str, Iterable[Identity]]) -> dict[str, tuple[Identity, ...]]:
        return {name: tuple(i for i in leaders if i in self.engines) for name, leaders in groups.items()}

    def signal(self, identity: Identity, number: int) -> bool:
        engine = self.engines.get(identity)
        if engine is None:
            return False
        if number == signal.SIGTERM:
            if engine.behaviour != "hang":
                asyncio.get_running_loop().call_later(_ENDS_S, engine.end, Exit(status=0))
        else:
            engine.end(Exit(signal=number))
        return True

    def resident_bytes(self, processes: Iterable[Identity]) -> int | None:
        return 3 * 2**30 * sum(i in self.engines for i in processes)

    def listens(self, port: int, processes: Iterable[Identity]) -> bool | None:
        return any(self.engines[i].spec.port == port for i in processes if i in self.engines)

    def device_names(self, devices: Collection[int]) -> tuple[str, ...] | None:
        names = {c.index: c.uuid or str(c.index) for c in self.cards}
        return tuple(names[d] for d in devices) if all(d in names for d in devices) else None

    def device_use(self, devices: Collection[int]) -> tuple[InUse, ...] | None:
        cards = {c.index: c for c in self.cards}
        if any(d not in cards for d in devices):
            return None
        return tuple(self._use(cards[d]) for d in devices)

    def device_memory(self, devices: Collection[int], processes: Iterable[Identity]) -> Mapping[int, int | None] | None:
        mine = [self.engines[i] for i in tuple(processes) if i in self.engines]
        return {d: self.held(d) if any(d in e.spec.devices for e in mine) else 0 for d in devices}

    def port_problem(self, host: str, port: int) -> str | None:
        taken = any(e.spec.port == port for e in self.engines.values())
        return "another pretended engine listens there" if taken else None

    async def get(self, host: str, port: int, path: str, key: str) -> Response | None:
        engine = self._on(port)
        return None if engine is None else engine.answer(path, key)

    async def connects(self, host: str, port: int) -> bool | None:
        if host == self.address:
            return self._on(port) is not None or any(e.meets(port) for e in self.engines.values())
        return await probe.connects(host, port)

    def held(self, device: int) -> int:
        """Bytes of a card that engines hold: nine tenths of it each, as engines with a KV cache take it."""
        card = next((c for c in self.cards if c.index == device), None)
        held = any(device in e.spec.devices and e.loaded for e in tuple(self.engines.values()))
        return int((card.memory_bytes or 0) * (1 - _LEFT)) if card is not None and held else 0

    def _use(self, card: GpuFacts) -> InUse:
        size, held = card.memory_bytes, self.held(card.index)
        here = [e for e in tuple(self.engines.values()) if card.index in e.spec.devices and e.loaded]
        free = None if size is None else size - held
        return InUse(card.index, size, free, tuple(Holder(e.identity.pid, "engine", held) for e in here))

    def lose(self) -> tuple[str, ...]:
        """The power is gone: everything that ran is over, and the next start is another one."""
        ended = tuple(e.spec.shard_id for e in self.engines.values())
        for engine in tuple(self.engines.values()):
            engine.end(Exit(signal=signal.SIGKILL))
        self._boots += 1
        return ended

    def _on(self, port: int) -> PretendedEngine | None:
        return next((e for e in self.engines.values() if e.spec.port == port and not e.over.done()), None)

    def _forget(self, engine: PretendedEngine) -> None:
        self.engines.pop(engine.identity, None)

    def _class_of(self, devices: tuple[int, ...]) -> str | None:
        return next((c.gpu_class for c in self.cards if c.index in devices), None)

    def _look_for_doubles(self, spec: ShardSpec, launch: Launch) -> None:
        """A second process of the same shard (a sidecar) shares its cards by right."""
        for engine in self.engines.values():
            shared = set(engine.spec.devices) & set(spec.devices)
            if shared and engine.spec.shard_id != spec.shard_id:
                held = ", ".join(map(str, sorted(shared)))
                self._fleet.doubled(f"{self.name}: {engine.spec.shard_id} and {spec.shard_id} on {held}")

    def _memory_problem(self, spec: ShardSpec, weights: Weights) -> str | None:
        cards = [c for c in self.cards if c.index in spec.devices]
        if not cards:
            return None
        room = sum(c.memory_bytes or 0 for c in cards) * max(1, spec.world_size)
        if spec.model in self.out_of_memory or weights.size_bytes > room * (1 - _LEFT):
            return out_of_memory(cards[0].memory_bytes or 0)
        return None
