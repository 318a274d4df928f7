"""A node for tests: a home, a supervisor on the real machine, and engines, real or scripted."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.engine import Capabilities, Command, Engine, MetricNames, ModelFacts, Paths, Probes
from agent.engines import ENGINES
from agent.node.context import Context
from agent.node.home import open_home
from agent.node.linux import LinuxHost
from agent.node.supervisor import Supervisor
from agent.node.weights import Weights
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.messages import Desired
from agent.wire.reason import Reason
from agent.wire.shard import Profile, ShardObserved, ShardSpec, ShardState, Source

KEY = "the-engines-own-key"
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def tiny(shard_id: str = "r-1.0", *, source: str = "starter:tiny", **profile: object) -> ShardSpec:
    values: dict[str, object] = {"context_length": 512, "cpu_cores": 1, "startup_timeout_s": 20.0, **profile}
    return ShardSpec(
        shard_id,
        shard_id.split(".")[0],
        "tiny",
        Profile("cpu", str(values.pop("engine", "llamacpp")), **values),  # type: ignore[arg-type]
        Source(source),
        free_port(),
        KEY,
    )


@dataclass(frozen=True)
class Scripted:
    """An engine that is a Python program given as text; `sidecar` one that is started before it."""

    script: str
    sidecar: str | None = None
    name: str = "scripted"
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(True, False, False, False, False, False, "a stand-in")
    )

    def problems(
        self, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None = None
    ) -> tuple[Reason, ...]:
        return ()

    def on_cards(self, profile: Profile, gpus: int) -> Profile:
        return replace(profile, gpus=gpus)

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        scripts = [s for s in (self.sidecar, self.script) if s is not None]
        return tuple(Command((paths.engine, "-c", s, str(shard.port), shard.model)) for s in scripts)

    def serves_http(self, rank: int) -> bool:
        return True

    def probes(self, shard: ShardSpec) -> Probes:
        return Probes()

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        return MetricNames()


class Node:
    """One home and the supervisor that works in it; `again()` is the next agent on the same home."""

    def __init__(self, folder: Path, *, engine: Engine | None = None, **context: object) -> None:
        self.home = open_home(folder)
        engines = dict(ENGINES)
        if engine is not None:
            engines[engine.name] = engine
        values: dict[str, object] = {
            "home": self.home,
            "host": LinuxHost(),
            "weights": Weights(self.home.weights),
            "engines": engines,
            "engine_path": lambda name: sys.executable,
            "import_from": str(ROOT),
            "environ": dict(os.environ),
            **context,
        }
        self.ctx = Context(**values)  # type: ignore[arg-type]
        self.changed = asyncio.Event()
        self.supervisor = Supervisor(self.ctx, self.changed.set)
        self.desired: Desired | None = None

    def want(self, *specs: ShardSpec, store: str = "s", synced: bool = True) -> None:
        self.desired = Desired(store, 1, 1, specs, synced)
        self.supervisor.converge(self.desired, "127.0.0.1")

    async def until(
        self, found: Callable[[tuple[ShardObserved, ...]], ShardObserved | bool | None], timeout_s: float = 20.0
    ) -> ShardObserved:
        """Converges as the agent does until `found` is true of what is observed."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    result = found(self.supervisor.observed())
                    if result:
                        return result  # type: ignore[return-value]
                    self.changed.clear()
                    await self.changed.wait()
                    self.supervisor.converge(self.desired, "127.0.0.1")
        except TimeoutError:
            raise AssertionError(f"it did not come to that: {self.supervisor.observed()}") from None

    async def state(self, *states: ShardState, shard_id: str = "r-1.0", timeout_s: float = 20.0) -> ShardObserved:
        return await self.until(
            lambda shards: next((s for s in shards if s.shard_id == shard_id and s.state in states), None), timeout_s
        )

    async def again(self, settled_s: float = 5.0) -> Node:
        """The agent is gone without a word, and the next one has come."""
        self.supervisor.leave()
        await asyncio.sleep(0)
        node = Node(self.home.path)
        node.ctx = replace(self.ctx, host=LinuxHost())
        node.supervisor = Supervisor(node.ctx, node.changed.set)
        await node.supervisor.recover()
        await node.supervisor.settled(settled_s)
        return node

    async def close(self) -> None:
        await self.supervisor.end_all("the test is over")


def lives(pid: int) -> bool:
    """A zombie is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
