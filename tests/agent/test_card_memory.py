"""A card that others hold, and one that is too small: waited for, named, and told apart."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.holders import Holder, InUse, occupied, told
from agent.core.last_words import card_cause
from agent.node import freeing
from agent.node.linux import LinuxHost
from agent.wire.shard import CACHE_MEMORY, CARD_HELD, GPU_MEMORY, ShardObserved, ShardState
from tests.agent.node import ROOT, Node, Scripted, tiny
from tests.agent.test_supervisor import SERVER

GIB = 2**30
NOISE = tuple(f"(Worker pid={n}) shutting down" for n in range(15))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
            CACHE_MEMORY,
        ),
        ("ValueError: Free memory on device cuda:0 (111.99/139.8 GiB) on startup is less than desired", CARD_HELD),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", GPU_MEMORY),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", GPU_MEMORY),
        ("std::bad_alloc", None),
        ("all is well", None),
    ],
)
def test_what_was_wanting_is_read_from_the_log(line: str, cause: str | None) -> None:
    assert card_cause((line, *NOISE)) == cause


def test_what_a_driver_holds_by_itself_is_nobodys() -> None:
    idle = InUse(0, 80 * GIB, 79 * GIB, (Holder(9, "Xorg", 300 * 2**20),))
    assert occupied((idle,)) == ()
    busy = InUse(1, 80 * GIB, 20 * GIB, (Holder(7, "python3", 59 * GIB), Holder(8, None, None)))
    assert occupied((idle, busy)) == (busy,)
    assert told((busy,)) == "process 7 (python3) holds 59.0 GiB, process 8 holds some of GPU 1"
    unseen = replace(busy, holders=())
    assert told((unseen,)) == "60.0 GiB of GPU 1 are not free, and the driver names no process that holds them"
    many = InUse(2, None, None, tuple(Holder(n, "x", n * GIB) for n in range(1, 6)))
    assert occupied((many,)) == (many,)
    assert told((many,)).endswith("process 3 (x) holds 3.0 GiB and 2 more processes hold some of GPU 2")


class Cards(LinuxHost):
    """A real machine with one pretended card: `use` is what is told of it, in this order, the last for ever."""

    def __init__(self, *use: InUse | None) -> None:
        super().__init__()
        self._use = list(use)
        self.asked = 0

    def device_use(self, devices: Collection[int]) -> tuple[InUse, ...] | None:
        self.asked += 1
        found = self._use.pop(0) if len(self._use) > 1 else self._use[0]
        return None if found is None else (found,)


FREE = InUse(0, 80 * GIB, 79 * GIB)
HELD = InUse(0, 80 * GIB, 20 * GIB, (Holder(4711, "python3", 60 * GIB),))
GOING = InUse(0, 80 * GIB, 20 * GIB)
"""Its process is gone, and the driver has not given its memory back yet."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(freeing, "_FREED_S", 0.3)
    monkeypatch.setattr(freeing, "_POLL_S", 0.02)
    return


async def ended(tmp_path: Path, host: Cards, script: str) -> tuple[ShardObserved, tuple[str | None, ...]]:
    """How a shard on card 0 ended (or became loading), and what was said before."""
    node = Node(tmp_path / "home", engine=Scripted(script), host=host)
    said: list[str | None] = []

    def over(shards: tuple[ShardObserved, ...]) -> ShardObserved | None:
        for shard in shards:
            if shard.reason not in said:
                said.append(shard.reason)
            if shard.state in (ShardState.FAILED, ShardState.LOADING, ShardState.READY):
                return shard
        return None

    try:
        node.want(replace(tiny(engine="scripted", startup_timeout_s=20.0), devices=(0,)))
        return await node.until(over), tuple(said)
    finally:
        await node.close()


@pytest.mark.usefixtures("quick")
async def test_a_start_waits_until_the_card_is_free(tmp_path: Path) -> None:
    found, said = await ended(tmp_path, Cards(HELD, GOING, GOING, FREE), SERVER + "serve()")
    assert found.state is not ShardState.FAILED
    assert any(reason and reason.startswith("it waits for its cards to be free: ") for reason in said)


@pytest.mark.usefixtures("quick")
async def test_who_holds_the_card_is_named(tmp_path: Path) -> None:
    host = Cards(HELD)
    found, said = await ended(tmp_path, host, SERVER + "serve()")
    assert found.reason == ("its cards were not free within 0.3 s: process 4711 (python3) holds 60.0 GiB of GPU 0")
    assert (found.state, found.cause, found.pid) == (ShardState.FAILED, CARD_HELD, None)
    assert "it waits for its cards to be free: process 4711 (python3) holds 60.0 GiB of GPU 0" in said
    assert host.asked > 2


@pytest.mark.usefixtures("quick")
async def test_the_next_agent_tells_the_cause_as_well(tmp_path: Path) -> None:
    node = Node(tmp_path / "home", engine=Scripted(SERVER + "serve()"), host=Cards(HELD))
    node.want(replace(tiny(engine="scripted"), devices=(0,)))
    await node.state(ShardState.FAILED)
    again = await node.again()
    assert [s.cause for s in again.supervisor.observed()] == [CARD_HELD]
    await again.close()


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("use", "cause", "words"),
    [
        ((FREE,), GPU_MEMORY, ""),
        ((FREE, HELD), CARD_HELD, "; process 4711 (python3) holds 60.0 GiB of GPU 0"),
        ((FREE, GOING), None, ""),
        ((None,), None, ""),
    ],
    ids=["nobody else", "another", "not given back", "not told"],
)
async def test_a_card_that_is_too_small_is_told_from_one_that_is_held(
    tmp_path: Path, use: tuple[InUse | None, ...], cause: str | None, words: str
) -> None:
    script = f"import sys; print({OOM!r}); print('bye\\n' * 15); sys.stdout.flush(); sys.exit(1)"
    found, _ = await ended(tmp_path, Cards(*use), script)
    assert (found.state, found.cause) == (ShardState.FAILED, cause)
    assert (
        found.reason
        == f"scripted ended with status 1 while starting: out of GPU memory: {OOM.partition(': ')[2]}{words}"
    )
    assert OOM in (found.last_words or ())


DRIVER = """
import asyncio, os, pathlib, subprocess, sys
from dataclasses import replace
from agent.node import freeing
from tests.agent.node import Node, Scripted, tiny
from tests.agent.test_supervisor import SERVER
from agent.wire.shard import ShardState as S
freeing._FREED_S, freeing._POLL_S = 2.5, 0.3
async def main():
    holders = pathlib.Path(os.environ["FAKE_NVML_HOLDERS"])
    stranger = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    holders.write_text(f"0 {stranger.pid} 30000\\n")
    node = Node(pathlib.Path(sys.argv[1]), engine=Scripted(SERVER + "serve()"))
    node.want(replace(tiny(engine="scripted", startup_timeout_s=20.0), devices=(0,)))
    first = await node.until(lambda shards: next((s for s in shards if s.reason), None))
    print(first.reason.replace(str(stranger.pid), "PID"))
    over = await node.until(lambda shards: next((s for s in shards if s.state is S.FAILED), None))
    print(over.reason.replace(str(stranger.pid), "PID"), over.cause)
    stranger.kill(); stranger.wait()
    holders.write_text("")
    node.want(replace(tiny(engine="scripted", startup_timeout_s=20.0), devices=(0,), incarnation=2))
    begun = await node.until(lambda shards: next((s for s in shards if s.state is S.LOADING), None))
    print(begun.state)
    await node.close()
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to make the driver's library with")
async def test_by_a_drivers_own_words(tmp_path: Path) -> None:
    """Through the real binding of NVML: another program's process on the card, and then nobody."""
    source = Path(__file__).with_name("nvml.c")
    library = tmp_path / "libnvidia-ml.so.1"
    await asyncio.to_thread(subprocess.run, ["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DRIVER, tmp_path / "home"],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML_HOLDERS": str(tmp_path / "holders")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "it waits for its cards to be free: process PID (sleep) holds 29.3 GiB of GPU 0",
        "its cards were not free within 2.5 s: process PID (sleep) holds 29.3 GiB of GPU 0 card_held",
        "loading",
    ]
