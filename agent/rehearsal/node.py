"""A pretended machine: the agent's own code in a home of its own, over the real link, on pretended hardware."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from pathlib import Path

from agent.engines import ENGINES
from agent.node import shardfile, status
from agent.node.agent import Agent, Identity
from agent.node.context import Context
from agent.node.home import open_home
from agent.node.link import WebsocketLink
from agent.node.settings import Settings, Tls
from agent.rehearsal.host import PretendedHost, Surely
from agent.rehearsal.link import Trouble, TroubledLink
from agent.rehearsal.surroundings import PretendedSurroundings
from agent.rehearsal.values import EngineSeen, Fleet, NodeSeen, PretendedNode
from agent.rehearsal.weights import PretendedWeights
from agent.wire.shard import ShardSpec


class Node:
    """`start` and `stop` are the agent's; the machine and its engines go on without it."""

    def __init__(self, node: PretendedNode, fleet: Fleet, shared: Surely) -> None:
        self.node = node
        self.trouble = Trouble()
        self._fleet = fleet
        self._home = open_home(Path(fleet.homes) / node.id)
        self.host = PretendedHost(node.id, node.address, node.facts.gpus or (), shared, self._spec_of)
        self._weights = PretendedWeights(
            self._home.weights,
            size_of=self._size_of,
            bytes_s=fleet.fetch_bytes_s * fleet.load_speed,
            here=set(node.facts.weights or ()),
        )
        papers = Path(fleet.papers)
        tls = Tls(papers / "ca.pem", papers / f"{node.id}.pem", papers / f"{node.id}-key.pem")
        self._settings = Settings(node.id, fleet.server, tls, address=node.address)
        self.link = TroubledLink(WebsocketLink(self._settings, lambda what: None), self.trouble)
        self._agent: Agent | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Its agent runs."""
        return self._task is not None

    def start(self) -> None:
        ctx = Context(
            home=self._home,
            host=self.host,
            weights=self._weights,
            engine_path=lambda name: f"/pretended/{name}" if self._has(name) else None,
        )
        surroundings = PretendedSurroundings(self.node.facts, self.host, self._weights.here)
        identity = Identity(self.node.id, secrets.token_hex(8), self.node.address)
        self._agent = Agent(ctx, identity, self.link, surroundings)
        self._task = asyncio.create_task(self._agent.run(), name=f"agent {self.node.id}")

    async def stop(self) -> None:
        """The agent goes at once, its engines stay: what a kill does."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self.link.cut()

    async def lose(self) -> tuple[str, ...]:
        """The machine goes: engines first, as when the power does; the shards that ran."""
        ended = self.host.lose()
        await self.stop()
        return ended

    async def empty(self) -> None:
        """A machine in its place, without what the old one kept."""
        await self.lose()
        for folder in (self._home.shards, self._home.scratch, self._home.logs):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self._home.order, self._home.taken):
            file.unlink(missing_ok=True)
        self._home = open_home(self._home.path)

    def problem(self) -> str:
        """What ended its agent, where something did."""
        task = self._task
        if task is None or not task.done() or task.cancelled():
            return ""
        error = task.exception()
        return f"{type(error).__name__}: {error}" if error is not None else "its agent ended"

    def seen(self) -> NodeSeen:
        told = status.link_of(self._home)
        state, problem = str(told.get("state") or ""), str(told.get("problem") or "")
        return NodeSeen(
            id=self.node.id,
            up=self.up,
            connected=self.up and state == "connected" and self.trouble.silent is None,
            devices=tuple(c.index for c in self.host.cards),
            engines=tuple(
                EngineSeen(
                    shard_id=e.spec.shard_id,
                    model=e.spec.model,
                    pid=e.identity.pid,
                    started=e.started,
                    port=e.spec.port,
                    devices=e.spec.devices,
                    incarnation=e.spec.incarnation,
                    ready=e.loaded,
                    behaviour=e.behaviour,
                )
                for e in self.host.engines.values()
            ),
            told=self.problem() or problem,
        )

    def _has(self, engine: str) -> bool:
        return engine in ENGINES and any(e.name == engine for e in self.node.facts.engines or ())

    def _size_of(self, url: str) -> int:
        """The fleet's models by name; a source is asked for by a shard whose record is there already."""
        for record in shardfile.read_all(self._home):
            if record.spec.source.url == url:
                found = self._fleet.models.get(record.spec.model)
                return found.size_bytes if found is not None else record.spec.source.size_bytes or 0
        return 0

    def _spec_of(self, shard_id: str) -> ShardSpec | None:
        for record in shardfile.read_all(self._home):
            if record.spec.shard_id == shard_id:
                return record.spec
        return None
