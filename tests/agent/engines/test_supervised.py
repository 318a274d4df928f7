"""Stand-ins under the real agent: with the launchers that it lays out, in the environment that it builds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.wire.shard import ShardSpec, Source
from agent.wire.shard import ShardState as S
from tests.agent.engines.profiles import shard
from tests.agent.engines.running import free_ports, stand_in
from tests.agent.node import Node, lives

pytestmark = pytest.mark.slow


def of(tmp_path: Path, spec: ShardSpec, port: int, meeting: int = 0) -> ShardSpec:
    weights = tmp_path / "weights"
    weights.mkdir(exist_ok=True)
    (weights / "config.json").write_text('{"num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 4}')
    gang = None if spec.gang is None else replace(spec.gang, port=meeting)
    return replace(spec, port=port, gang=gang, source=Source(f"path:{weights}"))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
async def test_an_engine_of_another_interpreter_serves(engine: str, tmp_path: Path) -> None:
    executable = stand_in(engine, tmp_path / "bin")
    node = Node(tmp_path / "home", engine_path=lambda name: executable)
    spec = of(tmp_path, shard(engine, (0,), tp=1), free_ports()[0])
    try:
        node.want(spec)
        found = await node.state(S.READY, S.FAILED, shard_id=spec.shard_id)
        assert found.state is S.READY, found.reason
        node.want()
        await node.until(lambda shards: not shards)
        assert found.pid is not None
        assert not lives(found.pid)
    finally:
        await node.close()


async def test_what_the_models_files_say_is_asked_before_it_is_started(tmp_path: Path) -> None:
    node = Node(tmp_path / "home", engine_path=lambda name: "/nowhere/vllm")
    spec = of(tmp_path, shard("vllm", (0, 1, 2), tp=3), free_ports()[0])
    try:
        node.want(spec)
        found = await node.state(S.FAILED, shard_id=spec.shard_id)
        assert "tensor parallel splits 2, 4 or 8 ways, and not 3" in str(found.reason)
    finally:
        await node.close()


MANY: dict[str, dict[str, Any]] = {
    "vllm-mp": {"engine": "vllm", "tp": 1, "pp": 2, "executor": "mp"},
    "vllm-ray": {"engine": "vllm", "tp": 1, "pp": 2, "executor": "ray"},
    "sglang": {"engine": "sglang", "tp": 2},
}


@pytest.mark.parametrize("name", sorted(MANY))
async def test_ranks_of_two_agents_serve_together(name: str, tmp_path: Path) -> None:
    profile = dict(MANY[name])
    engine = profile.pop("engine")
    executable = stand_in(engine, tmp_path / "bin")
    port, meeting = free_ports(2)
    nodes = [Node(tmp_path / f"home{r}", engine_path=lambda name: executable, alive_s=0.3) for r in (0, 1)]
    specs = [
        of(tmp_path, shard(engine, (0,), r, addresses=("127.0.0.1",) * 2, nodes=2, **profile), port, meeting)
        for r in (0, 1)
    ]
    try:
        for node, spec in reversed(list(zip(nodes, specs, strict=True))):  # the worker first: it waits for the leader
            node.want(spec)
        for node, spec in zip(nodes, specs, strict=True):
            found = await node.state(S.READY, S.FAILED, shard_id=spec.shard_id)
            assert found.state is S.READY, found.reason
        nodes[0].want()
        await nodes[0].until(lambda shards: not shards)  # with Ray: the head too
        gone = await nodes[1].state(S.FAILED, shard_id=specs[1].shard_id)
        assert "gone" in str(gone.reason)
    finally:
        for node in nodes:
            await node.close()


async def test_ray_is_refused_where_anybody_could_reach_it(tmp_path: Path) -> None:
    node = Node(tmp_path / "home")
    wanted = shard("vllm", (0,), 1, addresses=("8.8.8.8", "8.8.4.4"), nodes=2, tp=1, pp=2, executor="ray")
    try:
        node.want(of(tmp_path, wanted, free_ports()[0]))
        found = await node.state(S.FAILED, shard_id=wanted.shard_id)
        assert "8.8.4.4 is not a private address" in str(found.reason)
    finally:
        await node.close()
