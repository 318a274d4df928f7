"""Many agents in one process, each with a machine, a link and a home of its own: nothing in an agent is global."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.node import shardfile
from agent.node.agent import Agent, Identity
from agent.node.context import Context
from agent.node.home import Home, open_home
from agent.node.weights import Weights
from agent.rehearsal.host import PretendedHost
from agent.wire.messages import Desired, Heartbeat, Hello, Message, Report, Settings, Welcome
from agent.wire.shard import ShardSpec, ShardState
from tests.agent.node import tiny
from tests.agent.rehearsed import Alone, Pipe, Plain

pytestmark = pytest.mark.slow
COUNT = 60


def _spec(home: Home, shard_id: str) -> ShardSpec | None:
    return next((r.spec for r in shardfile.read_all(home) if r.spec.shard_id == shard_id), None)


class Rehearsed:
    def __init__(self, folder: Path, number: int) -> None:
        home = open_home(folder / str(number))
        self.pipe, self.name, self.address = Pipe(), f"n{number}", f"127.77.0.{number + 1}"
        self.host = PretendedHost(self.name, self.address, (), Alone(), lambda shard_id: _spec(home, shard_id))
        ctx = Context(
            home=home,
            host=self.host,
            weights=Weights(home.weights),
            engine_path=lambda name: "/opt/llama-server",
        )
        self.surroundings = Plain(self.name)
        agent = Agent(ctx, Identity(self.name, "i", self.address), self.pipe, self.surroundings)
        self.task = asyncio.create_task(agent.run())

    async def close(self) -> None:
        self.task.cancel()
        self.host.lose()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def served(self, generation: int, incarnation: int) -> Heartbeat:
        def ready(m: Message) -> bool:
            return (
                isinstance(m, Heartbeat)
                and m.generation == generation
                and [(s.state, s.incarnation) for s in m.shards] == [(ShardState.READY, incarnation)]
            )

        found = await self.pipe.hear(ready)
        assert isinstance(found, Heartbeat)
        return found


async def test_many_agents_live_in_one_process(tmp_path: Path) -> None:
    nodes = [Rehearsed(tmp_path, n) for n in range(COUNT)]
    spec = tiny()  # the same shard and port on each: their machines do not know one another

    async def life(node: Rehearsed) -> None:
        hello = await node.pipe.hear(lambda m: isinstance(m, Hello))
        assert isinstance(hello, Hello)
        assert hello.node_id == node.name
        await node.pipe.say(Welcome("s", heartbeat_s=0.5))
        report = await node.pipe.hear(lambda m: isinstance(m, Report))
        assert isinstance(report, Report)
        assert report.facts.hostname == node.name
        await node.pipe.say(Desired("s", 1, 1, (spec,)))
        first = await node.served(1, 1)
        assert first.shards[0].address == node.address
        (process,) = node.host.engines.values()
        node.host.signal(process.identity, 9)
        await node.pipe.hear(lambda m: isinstance(m, Heartbeat) and m.shards[0].state is ShardState.FAILED)

    began, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(life(node) for node in nodes))
    assert time.monotonic() - began < 30
    assert time.process_time() - cpu < 20
    for node in nodes:
        await node.close()


async def test_settings_of_the_cluster_are_obeyed_while_connected(tmp_path: Path) -> None:
    node = Rehearsed(tmp_path, 0)
    await node.pipe.say(Welcome("s", heartbeat_s=60, settings={"labels": {"rack": "a"}, "of_the_future": 1}))

    def labelled(*expected: tuple[str, str]) -> Callable[[Message], bool]:
        return lambda m: isinstance(m, Report) and m.facts.labels == dict(expected)

    async with asyncio.timeout(10):
        await node.pipe.hear(labelled(("rack", "a")))
        await node.pipe.hear(lambda m: isinstance(m, Heartbeat))
        await node.pipe.say(Settings(0.2, {"labels": {"rack": "b", "bad": 7}}))
        await node.pipe.hear(labelled(("rack", "b")))
        began = time.monotonic()
        for _ in range(4):
            await node.pipe.hear(lambda m: isinstance(m, Heartbeat))
        assert time.monotonic() - began < 3
        await node.pipe.say(Settings(60, {"labels": "none"}))
        await node.pipe.hear(lambda m: isinstance(m, Report) and not m.facts.labels)
    await node.close()


async def test_facts_that_hang_do_not_silence_the_heartbeats(tmp_path: Path) -> None:
    node = Rehearsed(tmp_path, 0)
    free = threading.Event()
    facts = node.surroundings.facts
    await node.pipe.say(Welcome("s", heartbeat_s=0.2))
    try:
        async with asyncio.timeout(10):
            await node.pipe.hear(lambda m: isinstance(m, Heartbeat))
            node.surroundings.facts = lambda *a: (free.wait(20), facts(*a))[1]  # type: ignore[method-assign]
            await node.pipe.say(Settings(0.2, {"labels": {"rack": "b"}}))
            for _ in range(5):
                await node.pipe.hear(lambda m: isinstance(m, Heartbeat))
            free.set()
            await node.pipe.hear(lambda m: isinstance(m, Report) and m.facts.labels == {"rack": "b"})
    finally:
        free.set()
        await node.close()
