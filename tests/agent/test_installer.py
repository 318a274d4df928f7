"""The agent keeps its engines as it is told to, while it goes on with everything else: over its real link, the real
worker, and a stand-in of GitHub."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.node.agent import Agent, Identity
from agent.node.discovery import Moving
from agent.node.install.installer import Ways, read_state
from agent.node.link import WebsocketLink
from agent.node.settings import Settings, Tls
from agent.wire.facts import EngineFacts, GpuFacts, NodeFacts
from agent.wire.messages import Message, Report
from agent.wire.messages import Settings as Told
from tests.agent.control import Control
from tests.agent.node import ROOT, Node
from tests.agent.pki import Authority
from tests.agent.releases import Releases, serving, tar

pytestmark = pytest.mark.slow
REPOSITORY = "ggml-org/llama.cpp"


def server(number: int, *, devices: str = "", pad: int = 0) -> bytes:
    script = f'#!/bin/sh\ncase "$1" in --list-devices) echo "{devices}";; *) echo "version: {number} (abc)";; esac\n'
    return tar({f"llama-b{number}/llama-server": script.encode()}, executable=("llama-server",), pad=pad)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.node.install.installer._TELL_EVERY_S", 0.1)


@pytest.fixture
def github() -> Iterator[Releases]:
    with serving() as releases:
        for number in (10991, 10992):
            releases.add(REPOSITORY, f"b{number}", f"llama-b{number}-bin-ubuntu-x64.tar.gz", server(number))
        yield releases


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with Control(Authority(tmp_path / "pki")) as c:
        yield c


class Machine:
    """A machine of which a test says what cards it has; its engines are those that are installed."""

    def __init__(self, root: Path, **facts: object) -> None:
        self.root = root
        self.known = NodeFacts(arch="x86_64", gpus=(), **facts)  # type: ignore[arg-type]

    def facts(self, address: str | None, own_ports: Collection[int]) -> NodeFacts:
        return replace(self.known, engines=read_state(self.root))

    def moving(self) -> Moving:
        return Moving()


class Running:
    def __init__(self, home: Path, control: Control, github: Releases, machine: Machine | None = None) -> None:
        self.node = Node(home)
        self.control = control
        self.root = self.node.home.engines
        self.machine = machine or Machine(self.root)
        self.machine.root = self.root
        pair = control.authority.node("n1")
        settings = Settings("n1", control.url, Tls(control.authority.pem, pair.cert, pair.key))
        ways = Ways(self.root, github=github.api, packages=False, import_from=str(ROOT), retry_s=0.01)
        link = WebsocketLink(settings, lambda _: None)
        self.agent = Agent(self.node.ctx, Identity("n1", "i"), link, self.machine, jitter=lambda: 0.0, ways=ways)
        assert self.agent._installer is not None
        self.agent._installer.have = lambda _: frozenset()
        self.task = asyncio.create_task(self.agent.run())

    async def told(self, **engines: str) -> None:
        await self.control.heard(lambda m: m if isinstance(m, Report) else None)
        await self.control.say(Told(0.3, {"engines": engines}))

    async def engine(self, found: Callable[[EngineFacts], bool], timeout_s: float = 25.0) -> EngineFacts:
        """The first report in which an engine is so."""

        def one(message: Message) -> EngineFacts | None:
            engines = message.facts.engines or () if isinstance(message, Report) else ()
            return next((e for e in engines if found(e)), None)

        return await self.control.heard(one, timeout_s)  # type: ignore[type-var, arg-type]

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def run(tmp_path: Path, control: Control, github: Releases) -> AsyncIterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(machine: Machine | None = None) -> Running:
        running.append(Running(tmp_path / "home", control, github, machine))
        return running[-1]

    yield start
    for r in running:
        await r.end()


async def test_it_tells_in_its_words_what_it_does_until_the_engine_is_there(
    run: Callable[..., Running], github: Releases
) -> None:
    name = "llama-b10991-bin-ubuntu-x64.tar.gz"
    github.add(REPOSITORY, "b10991", name, server(10991, pad=2 * 2**20))
    github.slow = threading.Event()
    node = run()
    await node.told(llamacpp="b10991", vllm="0.30.0")
    begun = await node.engine(lambda e: e.installing is not None and f"downloading {name} (2 MB)" in e.installing)
    assert begun.path is None
    assert begun.problem == f"installing: {begun.installing}"
    github.slow.set()
    there = await node.engine(lambda e: e.path is not None)
    assert there == EngineFacts(
        "llamacpp",
        "b10991",
        "cpu",
        str(node.root / "llamacpp" / "b10991-cpu" / "llama-b10991" / "llama-server"),
    )  # and nothing of vLLM, which this node has no card for
    assert Path(str(there.path)).exists()


async def test_another_version_comes_beside_and_an_engine_that_runs_stays(
    run: Callable[..., Running], github: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.core.installing.UNUSED_S", 0.3)
    node = run()
    await node.told(llamacpp="b10991")
    old = await node.engine(lambda e: e.path is not None)
    folder = Path(str(old.path)).parents[1]
    running = await asyncio.create_subprocess_exec("sh", "-c", "sleep 60; true", f"{folder}/llama-server")
    try:
        await node.control.say(Told(0.3, {"engines": {"llamacpp": "b10992"}}))
        new = await node.engine(lambda e: e.version == "b10992" and e.problem is None)
        assert new.path is not None
        await asyncio.sleep(1.0)
        assert folder.exists()
    finally:
        running.kill()
        await running.wait()
    async with asyncio.timeout(20):
        while folder.exists():
            await asyncio.sleep(0.05)
    assert Path(new.path).exists()
    await node.control.say(Told(0.3, {"engines": {"llamacpp": ""}}))
    async with asyncio.timeout(20):
        while Path(new.path).exists():
            await asyncio.sleep(0.05)


async def test_a_build_that_lists_no_card_is_passed_over_for_the_next(
    run: Callable[..., Running], github: Releases
) -> None:
    github.add(REPOSITORY, "b10991", "llama-b10991-bin-ubuntu-cuda-12.8-x64.tar.gz", server(10991))
    github.add(REPOSITORY, "b10991", "cudart-llama-b10991-bin-ubuntu-cuda-12.8-x64.tar.gz", tar({"x/libc.so.12": b""}))
    vulkan = server(10991, devices="  Vulkan0: NVIDIA A10G (1 MiB)")
    github.add(REPOSITORY, "b10991", "llama-b10991-bin-ubuntu-vulkan-x64.tar.gz", vulkan)
    machine = Machine(Path(), driver="570.1")
    machine.known = replace(machine.known, gpus=(GpuFacts(0, compute_capability="8.6"),))
    node = run(machine)
    await node.told(llamacpp="b10991")
    found = await node.engine(lambda e: e.path is not None)
    assert found.build == "vulkan"
    assert "cuda-12.8" in (node.root / "tries.json").read_text()
    assert "lists no GPU" in (node.root / "tries.json").read_text()


async def test_what_fails_is_said_and_what_was_wrong_with_the_setting_too(
    run: Callable[..., Running], github: Releases
) -> None:
    github.assets.clear()
    node = run()
    await node.told(llamacpp="b10991", vllm="newest")
    found = await node.engine(lambda e: e.problem is not None and "installing" not in e.problem)
    assert found.problem == "there is no release ggml-org/llama.cpp b10991: llmgw config get engines"
    old = Machine(node.root, driver="470.1")
    node.machine.known = replace(old.known, gpus=(GpuFacts(0, compute_capability="8.0"),))
    await node.control.say(Told(0.3, {"engines": {"llamacpp": "", "vllm": "0.30.0"}}))
    cannot = await node.engine(lambda e: e.name == "vllm")
    assert cannot.problem == (
        "vLLM needs NVIDIA driver 525 or newer, and this node has 470 (install a newer NVIDIA driver)"
    )


async def test_an_engine_whose_look_fails_has_a_problem_until_it_works_again(
    run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.core.installing.AGAIN_S", 0.3)
    monkeypatch.setattr("agent.core.installing.BROKEN_AGAIN_S", 0.3)
    node = run()
    await node.told(llamacpp="b10991")
    there = await node.engine(lambda e: e.path is not None)
    program = Path(str(there.path))
    whole = program.read_text()
    program.write_text("#!/bin/sh\necho error while loading shared libraries: libgomp.so.1\nexit 127\n")
    broken = await node.engine(lambda e: e.problem is not None and "libgomp.so.1" in e.problem)
    assert broken.path == there.path
    program.write_text(whole)
    await node.engine(lambda e: e.path is not None and e.problem is None)


async def test_an_agent_that_is_told_nothing_changes_nothing(run: Callable[..., Running], github: Releases) -> None:
    node = run()
    await node.told(llamacpp="b10991")
    there = await node.engine(lambda e: e.path is not None)
    await node.end()
    asked = len(github.asked)
    again = run()
    await again.control.heard(lambda m: m if isinstance(m, Report) and m.facts.engines == (there,) else None)
    await asyncio.sleep(0.3)
    assert len(github.asked) == asked
    assert Path(str(there.path)).exists()
