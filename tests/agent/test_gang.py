"""Shards of several ranks, on nodes in namespaces of their own: agents and processes are real, the engine stands in."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.core import gang
from agent.engine import Command, Rendezvous
from agent.wire.shard import Gang, Profile, ShardSpec, ShardState, Source
from tests.agent.gang.lab import Lab, again, opened
from tests.agent.node import lives

S = ShardState


def spec(rank: int = 1, source: Source = Source("path:/m.gguf"), world: int = 2) -> ShardSpec:  # noqa: B008
    meeting = Gang(("10.0.0.1", "10.0.0.2"), 5000) if world > 1 else None
    profile = Profile("p", "vllm", startup_timeout_s=300.0)
    return ShardSpec("r-1.1", "r-1", "m", profile, source, 9000, "k", rank, world, gang=meeting)


def test_a_worker_meets_its_leader_and_waits_as_long_as_another_may_fetch() -> None:
    plain = (Command(("x",)),)
    assert gang.meeting(spec(), plain) == Rendezvous("10.0.0.1", 5000, 300.0)
    assert gang.meeting(spec(rank=0), plain) is None
    own = (Command(("x",), waits_for=Rendezvous("10.0.0.1", 6379, 60.0)),)
    assert gang.meeting(spec(), own) is None, "an engine that says so itself knows better"
    assert gang.patience_s(spec(source=Source("hf:o/r/f", size_bytes=40_000_000_000))) == 300 + 2000
    assert gang.patience_s(spec(source=Source("hf:o/r/f"))) == 300 + 1800
    assert gang.patience_s(spec(0, Source("hf:o/r/f"), world=1)) == 300


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with opened(tmp_path, 2) as made:
        yield made


pytest_slow = pytest.mark.slow


@pytest_slow
async def test_ranks_come_up_together_and_end_together(lab: Lab) -> None:
    one, two = lab.nodes
    specs = lab.gang()
    leader, worker = specs
    await two.control.want(worker)
    waiting = await two.shard(worker, S.STARTING)
    async with asyncio.timeout(5):
        while waiting.reason is None:
            waiting = await two.shard(worker, S.STARTING)
    assert waiting.reason == f"it waits for {one.address}:{leader.gang.port}"  # type: ignore[union-attr]
    assert waiting.pid is None
    await one.control.want(leader)  # late
    ready = await lab.serving(specs)
    assert all(r.pid is not None and lives(r.pid) for r in ready)
    assert ready[0].took is not None
    assert ready[0].took.start_s is not None

    # The worker is killed: its node says so, and the leader's engine says whom it missed.
    os.kill(ready[1].pid or 0, signal.SIGKILL)
    dead = await two.shard(worker, S.FAILED)
    assert str(dead.reason).startswith("ganged, rank 1, was ended by SIGKILL")
    alone = await one.shard(leader, S.FAILED)
    assert "RuntimeError: rank 1 left" in str(alone.reason)
    specs = again(specs)
    await lab.want(specs)
    ready = await lab.serving(specs)

    # The leader is killed.
    os.kill(ready[0].pid or 0, signal.SIGKILL)
    assert "SIGKILL" in str((await one.shard(specs[0], S.FAILED)).reason)
    assert "RuntimeError: the leader left" in str((await two.shard(specs[1], S.FAILED)).reason)
    specs = again(specs)
    await lab.want(specs)
    ready = await lab.serving(specs)

    for node in lab.nodes:
        node.control.said.clear()
    await lab.want([])
    for node in lab.nodes:
        await node.control.heard(lambda m: m if getattr(m, "shards", None) == () else None)
    assert not any(lives(r.pid or 0) for r in ready)

    # A leader that never comes.
    leader, worker = lab.gang(startup_timeout_s=1.0)
    await two.control.want(worker)
    failed = await two.shard(worker, S.FAILED)
    assert leader.gang is not None
    where = f"{leader.gang.addresses[0]}:{leader.gang.port}"
    assert failed.reason == (
        f"nothing listened on {where} within 1 s, where it was to meet the others: the first rank did not start, "
        "or its node cannot be reached at that port from here"
    )


@pytest_slow
async def test_a_cut_network_or_a_restarted_machine_fails_a_rank(lab: Lab) -> None:
    one, two = lab.nodes
    specs = lab.gang()
    await lab.want(specs)
    await lab.serving(specs)
    two.cut()
    missed = await one.shard(specs[0], S.FAILED)
    assert "RuntimeError: rank 1 left" in str(missed.reason)
    two.cut(off=False)
    lost = await two.shard(specs[1], S.FAILED, timeout_s=30)
    assert "RuntimeError: the leader left" in str(lost.reason)

    specs = again(specs)
    await lab.want(specs)
    await lab.serving(specs)
    two.control.said.clear()
    two.reboot()
    begun = await two.shard(specs[1], S.FAILED)
    assert begun.reason == "its machine was restarted, and one rank cannot begin alone: all of them begin anew"
    assert "left" in str((await one.shard(specs[0], S.FAILED)).reason)
