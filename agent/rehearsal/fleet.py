"""Many pretended machines in one process, and what is done to them: orders in on standard input, answers out."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import msgspec

from agent.core.last_words import Exit
from agent.rehearsal import words
from agent.rehearsal.engine import BEHAVIOURS
from agent.rehearsal.figures import Weights
from agent.rehearsal.node import Node
from agent.rehearsal.values import Done, Fleet, Order, Seen


class Refused(Exception):
    """The order makes no sense; the sentence says why."""


class Machines:
    """Every node of the process. See `agent.rehearsal.host.Surely` too."""

    def __init__(self, fleet: Fleet) -> None:
        self.load_speed, self.answer_speed = fleet.load_speed, fleet.answer_speed
        self._models = fleet.models
        self._doubled: list[str] = []
        self._requests = 0
        self.nodes = {n.id: Node(n, fleet, self) for n in fleet.nodes}
        self._orders: dict[str, Callable[[tuple[Node, ...], Order], Awaitable[tuple[str, ...]]]] = {
            "start": self._start,
            "stop": self._stop,
            "restart": self._restart,
            "lose": self._lose,
            "replace": self._replace,
            "cut": self._cut,
            "silence": self._silence,
            "delay": self._delay,
            "mend": self._mend,
            "behave": self._behave,
            "crash": self._crash,
            "out_of_memory": self._out_of_memory,
            "older": self._older,
            "too_old": self._too_old,
            "lie": self._lie,
            "seen": self._nothing,
        }

    @property
    def models(self) -> Mapping[str, Weights]:
        return self._models

    def doubled(self, what: str) -> None:
        self._doubled.append(what)

    def answered(self) -> None:
        self._requests += 1

    async def obey(self, order: Order) -> Done:
        """Carries one order out. An order without nodes is for all."""
        do = self._orders.get(order.do)
        if do is None:
            return Done(order.id, f"there is no order {order.do!r}; there are {', '.join(sorted(self._orders))}")
        # A world may be in several processes: each takes its own nodes of an order.
        nodes = (
            tuple(self.nodes[n] for n in order.nodes if n in self.nodes) if order.nodes else tuple(self.nodes.values())
        )
        try:
            touched = await do(nodes, order)
        except Refused as e:
            return Done(order.id, str(e))
        return Done(order.id, touched=touched, seen=self.seen() if order.do == "seen" else None)

    def seen(self) -> Seen:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Seen(
            tuple(n.seen() for n in self.nodes.values()),
            tuple(self._doubled),
            self._requests,
            used.ru_utime + used.ru_stime,
            used.ru_maxrss * 1024,
        )

    async def end(self) -> None:
        await asyncio.gather(*(n.lose() for n in self.nodes.values()))

    async def _start(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        """`within_s`: spread over so many seconds."""
        pause_s = float(order.args.get("within_s", 0)) / max(1, len(nodes))
        for node in nodes:
            if not node.up:
                node.start()
            if pause_s:
                await asyncio.sleep(pause_s)
        return tuple(n.node.id for n in nodes)

    async def _stop(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        await asyncio.gather(*(n.stop() for n in nodes))
        return tuple(n.node.id for n in nodes)

    async def _restart(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        await self._stop(nodes, order)
        return await self._start(nodes, order)

    async def _lose(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        return tuple(s for ended in await asyncio.gather(*(n.lose() for n in nodes)) for s in ended)

    async def _replace(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        await asyncio.gather(*(n.empty() for n in nodes))
        return await self._start(nodes, order)

    async def _cut(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        for node in nodes:
            node.trouble.cut = True
        await asyncio.gather(*(n.link.cut() for n in nodes), return_exceptions=True)
        return tuple(n.node.id for n in nodes)

    async def _silence(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        for node in nodes:
            node.trouble.silent = node.trouble.silent or asyncio.Event()
        return tuple(n.node.id for n in nodes)

    async def _delay(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        for node in nodes:
            node.trouble.delay_s = float(order.args.get("seconds", 1))
        return tuple(n.node.id for n in nodes)

    async def _mend(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        """Everything is as it was: the way to the control plane, what agents say, how engines behave from now on. An
        agent that spoke otherwise begins anew, as after its upgrade."""
        for node in nodes:
            trouble = node.trouble
            trouble.cut, trouble.delay_s = False, 0.0
            if trouble.silent is not None:
                trouble.silent.set()
                trouble.silent = None
            node.host.behaviours.clear()
            node.host.out_of_memory.clear()
            for engine in node.host.engines.values():
                engine.behaviour = "well"
            if trouble.words:
                trouble.words.clear()
                await self._restart((node,), order)
        return tuple(n.node.id for n in nodes)

    async def _behave(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        """`model`, `how`: engines of it behave so from now on, those that start too."""
        model, how = str(order.args.get("model", "")), str(order.args.get("how", ""))
        if how not in BEHAVIOURS:
            raise Refused(f"an engine behaves {', '.join(BEHAVIOURS)}, and not {how!r}")
        touched = []
        for node in nodes:
            node.host.behaviours[model] = how
            for engine in tuple(node.host.engines.values()):
                if engine.spec.model == model:
                    engine.behaviour = how
                    touched.append(engine.spec.shard_id)
                    if how == "crash_loop":
                        engine.end(Exit(status=1), "RuntimeError: told to die")
        return tuple(touched)

    async def _crash(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        """`model` (empty: any), `count`: so many engines die, once."""
        model, left = str(order.args.get("model", "")), int(order.args.get("count", 1))
        touched: list[str] = []
        for node in nodes:
            for engine in tuple(node.host.engines.values()):
                if left > len(touched) and model in ("", engine.spec.model):
                    touched.append(engine.spec.shard_id)
                    engine.end(Exit(signal=11), "Segmentation fault (pretended)")
        return tuple(touched)

    async def _out_of_memory(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        """`model`: its engines find no memory when they start; those that run, run into it."""
        model = str(order.args.get("model", ""))
        for node in nodes:
            node.host.out_of_memory.add(model)
        return await self._crash(nodes, replace(order, args={"model": model, "count": 10**6}))

    async def _older(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        return await self._speak(nodes, order, words.older)

    async def _too_old(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        return await self._speak(nodes, order, words.too_old)

    async def _lie(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        about, other = str(order.args.get("about", "")), str(order.args.get("other", ""))
        return await self._speak(nodes, order, words.lying(about, other))

    async def _speak(self, nodes: tuple[Node, ...], order: Order, said: words.Words) -> tuple[str, ...]:
        for node in nodes:
            node.trouble.words.append(said)
        return await self._restart(nodes, order)

    async def _nothing(self, nodes: tuple[Node, ...], order: Order) -> tuple[str, ...]:
        return ()


async def serve(fleet: Fleet) -> None:
    """Until standard input ends: whoever began this process is gone then, and so is the world."""
    machines = Machines(fleet)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    decoder, encoder = msgspec.json.Decoder(Order), msgspec.json.Encoder()
    try:
        while line := await reader.readline():
            done = await machines.obey(decoder.decode(line))
            sys.stdout.buffer.write(encoder.encode(done) + b"\n")
            sys.stdout.buffer.flush()
    finally:
        began = time.monotonic()
        await machines.end()
        if time.monotonic() - began > 5:
            print("it took long to end", file=sys.stderr)
