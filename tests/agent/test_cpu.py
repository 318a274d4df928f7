"""Cores of engines on the CPU whose profiles name none, beside others on the same machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.cpu import share
from agent.wire.shard import Profile, ShardSpec, ShardState, Source
from tests.agent.node import Node, tiny


def engine(name: str, cores: int | None = None, devices: tuple[int, ...] = ()) -> ShardSpec:
    run = Profile("p", "llamacpp", cpu_cores=cores, gpus=len(devices))
    return ShardSpec(f"{name}.0", name, "m", run, Source("starter:tiny"), 9100, "key", devices=devices)


@pytest.mark.parametrize(
    ("others", "cores", "expected"),
    [
        ((), 8, None),
        ((engine("card", devices=(0,)),), 8, None),
        ((engine("b"),), 8, 4),
        ((engine("b"), engine("c")), 8, 3),
        ((engine("b", 2), engine("c")), 8, 3),
        ((engine("b", 6),), 8, 2),
        ((engine("b", 16),), 8, 1),
        (tuple(engine(n) for n in "bcdef"), 2, 1),
        ((engine("b"),), None, None),
    ],
)
def test_what_is_not_named_is_shared(others: tuple[ShardSpec, ...], cores: int | None, expected: int | None) -> None:
    assert share(engine("a"), (engine("a"), *others), cores) == expected


def test_who_names_its_cores_or_has_a_card_is_left_alone() -> None:
    assert share(engine("a", 4), (engine("b"),), 8) is None
    assert share(engine("a", devices=(0,)), (engine("b"),), 8) is None


@pytest.mark.slow
async def test_engines_that_share_are_bounded_and_those_that_run_are_left(tmp_path: Path) -> None:
    node = Node(tmp_path / "home", cores=4)
    specs = [tiny(f"r-{n}.0", cpu_cores=None) for n in (1, 2)]
    try:
        node.want(specs[0])
        first = await node.state(ShardState.READY, ShardState.FAILED)
        assert first.state is ShardState.READY, first.reason
        node.want(*specs)
        second = await node.state(ShardState.READY, ShardState.FAILED, shard_id="r-2.0")
        assert second.state is ShardState.READY, second.reason
        assert (await node.state(ShardState.READY)).pid == first.pid
        assert "--threads" not in _told(first.pid, "cmdline")
        assert "--threads\0002\0--threads-batch\0002" in _told(second.pid, "cmdline")
        for one in (first, second):
            assert "OMP_WAIT_POLICY=passive" in _told(one.pid, "environ")
    finally:
        await node.close()


def _told(pid: int | None, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()
