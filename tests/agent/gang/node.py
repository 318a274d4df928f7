"""An agent that knows the stand-in engine, for a namespace: `python -m tests.agent.gang.node HOME BOOT_ID`."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.engine import Capabilities, Command, MetricNames, ModelFacts, Paths, Probes
from agent.node.agent import Agent, Identity
from agent.node.context import Context
from agent.node.home import only_agent, open_home
from agent.node.link import WebsocketLink
from agent.node.linux import LinuxHost
from agent.node.settings import Settings, read
from agent.node.this_machine import ThisMachine
from agent.node.weights import Weights
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Profile, ShardSpec

ENGINE = Path(__file__).with_name("engine.py")
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Ganged:
    """An engine over several nodes. Its workers serve no HTTP; who waits for whom is the agent's own rule."""

    name: str = "ganged"
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(True, False, True, True, False, False, "a stand-in")
    )

    def problems(
        self, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None = None
    ) -> tuple[Reason, ...]:
        return ()

    def on_cards(self, profile: Profile, gpus: int) -> Profile:
        return replace(profile, gpus=gpus)

    def commands(self, shard: ShardSpec, paths: Paths, host: str) -> tuple[Command, ...]:
        assert shard.gang is not None
        meeting = (shard.gang.addresses[0], str(shard.gang.port))
        ranks = (str(shard.rank), str(shard.world_size))
        return (Command((paths.engine, str(ENGINE), *ranks, *meeting, host, str(shard.port), shard.model)),)

    def serves_http(self, rank: int) -> bool:
        return rank == 0

    def probes(self, shard: ShardSpec) -> Probes:
        return Probes()

    def metrics(self, engine: EngineFacts | None) -> MetricNames:
        return MetricNames()


class Booted(LinuxHost):
    """A machine that says which boot it is in."""

    def __init__(self, boot: str) -> None:
        super().__init__()
        self._boot_id = boot


class Here(ThisMachine):
    """A machine on which the stand-in engine is found."""

    def facts(self, address: str | None, own_ports: Collection[int]) -> NodeFacts:
        return replace(super().facts(address, own_ports), engines=(EngineFacts("ganged", "1", path=sys.executable),))


async def run(home_path: Path, boot: str) -> None:
    home = open_home(home_path)
    settings = read(home.settings)
    assert isinstance(settings, Settings), settings
    ctx = Context(
        home=home,
        host=Booted(boot),
        weights=Weights(home.weights),
        engines={"ganged": Ganged()},
        engine_path=lambda name: sys.executable,
        environ=dict(os.environ),
        alive_s=0.5,
    )
    with only_agent(home):
        link = WebsocketLink(settings, lambda sentence: None)
        identity = Identity(settings.node_id, secrets.token_hex(8), settings.address)
        await Agent(ctx, identity, link, Here(home, settings)).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2]))
