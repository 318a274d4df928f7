"""The agent over its real link: a websocket server with mutual TLS, the real agent in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import agent.node.link
from agent.core.converge import Taken
from agent.core.source import Download
from agent.core.source import read as read_source
from agent.node import kept
from agent.node.agent import Agent, Identity
from agent.node.discovery import Moving
from agent.node.link import LinkLost, WebsocketLink
from agent.node.settings import Settings, Tls
from agent.wire.facts import NodeFacts
from agent.wire.messages import Answer, Desired, Heartbeat, Hello, Message, Refused, Report
from agent.wire.shard import ShardState
from tests.agent.control import Control
from tests.agent.node import KEY, Node, tiny
from tests.agent.pki import Authority, Pair

pytestmark = pytest.mark.slow
S = ShardState


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
async def control(authority: Authority) -> AsyncIterator[Control]:
    async with Control(authority) as c:
        yield c


def settings(control: Control, pair: Pair, **changes: object) -> Settings:
    tls = Tls(control.authority.pem, pair.cert, pair.key)
    return replace(Settings("n1", control.url, tls), **changes)  # type: ignore[arg-type]


class Quiet:
    """Surroundings of which little is known."""

    def facts(self, address: str | None, own_ports: Collection[int]) -> NodeFacts:
        return NodeFacts(hostname="h", address=address, ports_taken=tuple(own_ports))

    def moving(self) -> Moving:
        return Moving(memory_free_bytes=1)


class Running:
    """An agent that runs in this process; `skipped` is what its link could not understand."""

    def __init__(self, node: Node, settings_: Settings) -> None:
        self.node = node
        self.skipped: list[str] = []
        self.agent = Agent(
            node.ctx,
            Identity(settings_.node_id, "instance-1", settings_.address),
            WebsocketLink(settings_, self.skipped.append),
            Quiet(),
            jitter=lambda: 0.0,
        )
        self.task = asyncio.create_task(self.agent.run())

    def status(self) -> dict[str, object]:
        found: dict[str, object] = msgspec.json.decode(self.node.home.status.read_bytes())
        return found

    async def told(self, state: str) -> dict[str, object]:
        async with asyncio.timeout(10):
            while not self.node.home.status.exists() or self.status()["state"] != state:
                assert not self.task.done(), self.task
                await asyncio.sleep(0.02)
        return self.status()

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Callable[[Settings], Running]]:
    running: list[Running] = []

    def start(settings_: Settings) -> Running:
        running.append(Running(Node(tmp_path / "home"), settings_))
        return running[-1]

    yield start
    for r in running:
        await r.end()
    last = Node(tmp_path / "home")
    await last.supervisor.recover()
    await last.close()


def of(kind: type[Message]) -> Callable[[Message], Message | None]:
    return lambda m: m if isinstance(m, kind) else None


async def test_it_introduces_itself_and_reports(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    run(settings(control, authority.node("n1")))
    hello = await control.heard(of(Hello))
    assert isinstance(hello, Hello)
    assert (hello.node_id, hello.instance, hello.protocol, hello.oldest) == ("n1", "instance-1", 1, 1)
    assert hello.boot_id
    report = await control.heard(of(Report))
    assert isinstance(report, Report)
    assert report.facts.address == "127.0.0.1"
    first = await control.heard(of(Heartbeat))
    second = await control.heard(of(Heartbeat))
    assert isinstance(first, Heartbeat)
    assert first.generation is None
    assert first.memory_free_bytes
    assert second is not first


async def test_an_order_is_carried_out_and_told(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    await running.told("connected")
    spec = tiny()
    await control.want(spec)
    ready = await control.shard("r-1.0", S.READY, S.FAILED)
    assert ready.state is S.READY
    await control.heard(lambda m: m if isinstance(m, Heartbeat) and m.generation == 1 else None)
    assert ready.pid is not None
    os.kill(ready.pid, signal.SIGKILL)
    failed = await control.shard("r-1.0", S.FAILED, timeout_s=2.0)
    assert failed.last_words
    await control.want(replace(spec, incarnation=2))
    await control.shard("r-1.0", S.READY, incarnation=2)
    await control.want()
    await control.heard(lambda m: m if isinstance(m, Heartbeat) and m.generation == 3 and not m.shards else None)


async def test_engines_go_on_while_the_control_plane_is_away(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    spec = tiny()
    await control.want(spec)
    ready = await control.shard("r-1.0", S.READY)
    await control.__aexit__()
    gone = await running.told("disconnected")
    assert control.url in str(gone["problem"])
    async with Control(authority, port=control.port) as back:
        report = await back.heard(of(Report))
        assert isinstance(report, Report)
        assert [(s.state, s.pid, s.fingerprint) for s in report.shards] == [(S.READY, ready.pid, spec.fingerprint)]
        assert (report.generation, report.store_id) == (1, "store-1")
        # An empty store, or a restored one, is not an order to stop.
        await back.want(store="another-store")
        await back.want(term=0)
        await asyncio.sleep(0.3)
        assert (await back.shard("r-1.0", S.READY)).pid == ready.pid
        await back.want(synced=False)
        await asyncio.sleep(0.3)
        assert (await back.shard("r-1.0", S.READY)).pid == ready.pid
    await control.__aenter__()


async def test_an_older_order_is_ignored_also_by_the_next_agent(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    await control.want(tiny(), term=5)
    ready = await control.shard("r-1.0", S.READY)
    await running.end()
    await control.want(term=4)
    control.said.clear()
    run(settings(control, authority.node("n1")))
    report = await control.heard(of(Report))
    assert isinstance(report, Report)
    assert report.shards[0].pid == ready.pid
    assert report.shards[0].adopted is True
    await asyncio.sleep(0.3)
    assert (await control.shard("r-1.0", S.READY)).pid == ready.pid


async def test_messages_it_does_not_know_are_skipped(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    await running.told("connected")
    await control.say(b'{"v":7,"t":"telepathy","b":{}}')
    await control.say(b'{"v":1,"t":"desired","b":{"store_id":7}}')
    await control.say(b"nonsense")
    answer = await control.ask("weights")
    assert answer.ok
    assert len(running.skipped) == 3
    assert "telepathy" in running.skipped[0]


async def test_a_message_that_is_too_large_costs_the_connection_only(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    await running.told("connected")
    await control.heard(of(Hello))
    with contextlib.suppress(Exception):
        await control.sockets[0].send("x" * 5_000_000)
    await control.heard(of(Hello))
    await running.told("connected")


async def test_unwanted_weights_go_once_nothing_else_is_left(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    source = "https://models.example/m.gguf"
    wanted = read_source(source)
    assert isinstance(wanted, Download)
    folder = running.node.home.weights / wanted.folder
    folder.mkdir(parents=True)
    file = folder / wanted.name
    file.write_bytes(b"weights")
    await control.want(tiny())
    await control.shard("r-1.0", S.READY)
    assert control.desired is not None
    await control.say(replace(control.desired, generation=90, shards=(), unwanted=(source,), synced=False))
    await asyncio.sleep(0.2)
    assert file.exists(), "nothing is deleted before the fleet has been heard"
    await control.say(replace(control.desired, generation=91, shards=(), unwanted=(source,)))
    for _ in range(200):
        if not file.exists():
            break
        await asyncio.sleep(0.05)
    assert not file.exists()
    assert running.node.home.weights.exists()


async def test_what_a_model_s_files_say_is_asked_of_the_node(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    await running.told("connected")
    known = await control.ask("model", source="starter:tiny")
    assert known.body["facts"]["trained_context"] > 0
    assert known.body["facts"]["kv_token_bytes"] > 0
    for other in ("hf:a/b/c.gguf", "path:/etc/hostname", "path:/nowhere", "starter:none", ""):
        assert (await control.ask("model", source=other)).body["facts"] is None


async def test_questions_are_answered_within_bounds(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    running = run(settings(control, authority.node("n1")))
    await control.want(tiny())
    await control.shard("r-1.0", S.READY)
    answer = await control.ask("log", shard_id="r-1.0", lines=3)
    assert answer.ok
    assert len(answer.body["lines"]) == 3
    assert "listening" in answer.body["lines"][-1]
    (running.node.home.logs / "r-1.0.log").write_text(f"the key is {KEY}\n" + ("x" * 300 + "\n") * 5000)
    answer = await control.ask("log", shard_id="r-1.0", lines=10**9)
    assert len(answer.body["lines"]) <= 1000
    assert KEY not in str(answer)
    for kind, args, said in (
        ("log", {"shard_id": "r-9.0"}, "no shard 'r-9.0'"),
        ("log", {"shard_id": "../../etc/passwd"}, "no shard"),
        ("log", {"lines": "many"}, "lines must be"),
        ("sing", {}, "does not know the question 'sing'"),
        ("doctor", {}, "does not exist"),
    ):
        answer = await control.ask(kind, **args)
        assert isinstance(answer, Answer)
        assert not answer.ok
        assert said in str(answer.problem)


async def test_a_refusal_is_told_and_tried_again(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    control.refuse = Refused("wrong_node_id", "the certificate is another node's", retry_s=0.1)
    running = run(settings(control, authority.node("n1")))
    told = await running.told("refused")
    assert (told["problem"], told["code"]) == ("the certificate is another node's", "wrong_node_id")
    control.refuse = None
    await running.told("connected")


async def test_one_that_answers_late_is_waited_for(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a whole fleet comes at once, whoever leaves the line and comes again makes it longer for all."""
    monkeypatch.setattr(agent.node.link, "_REACH_S", 0.2)
    control = Control(authority)
    with socket.create_server(("127.0.0.1", 0)) as control.listener:
        control.port = control.listener.getsockname()[1]
        dialled = asyncio.create_task(WebsocketLink(settings(control, authority.node("n1")), lambda _: None).dial())
        await asyncio.sleep(0.5)
        assert not dialled.done()
        async with control:
            await (await dialled).close()


async def test_what_tls_refuses_is_explained(control: Control, authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign", "another authority")
    good = authority.node("n1")
    server = authority.server()

    async def problem(changed: Settings) -> str:
        try:
            connection = await WebsocketLink(changed, lambda _: None).dial()
            await connection.receive()
        except LinkLost as e:
            return str(e)
        return "none"

    assert "refused this node's certificate" in await problem(settings(control, foreign.node("n1")))
    assert "refused this node's certificate" in await problem(settings(control, authority.node("old", days=-1)))
    assert "refused this node's certificate" in await problem(settings(control, server))
    distrusted = settings(control, good, tls=Tls(foreign.pem, good.cert, good.key))
    assert "is not trusted" in await problem(distrusted)
    misnamed = settings(control, good, tls=Tls(authority.pem, good.cert, good.key, "elsewhere"))
    assert "is not trusted" in await problem(misnamed)
    missing = settings(control, good, tls=Tls(authority.pem, tmp_path / "none.pem", good.key))
    assert "none.pem does not exist; join the cluster" in await problem(missing)
    nobody = settings(control, good, server="wss://127.0.0.1:9/agent/link")
    assert await problem(nobody) == "nothing listens on wss://127.0.0.1:9/agent/link"


async def ended_in_order(control: Control, running: Running) -> None:
    """The agent has one engine that serves, and both end as at Ctrl-C."""
    spec = tiny()
    await running.told("connected")
    await control.want(spec)
    await control.shard("r-1.0", S.READY)
    await running.end()
    last = Node(running.node.home.path)
    await last.supervisor.recover()
    await last.close()
    assert not list(running.node.home.shards.iterdir())


async def serving(running: Running) -> None:
    async with asyncio.timeout(15):
        while [s.state for s in running.agent.supervisor.observed()] != [S.READY]:
            assert not running.task.done(), running.task
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("address", [None, "127.0.0.1"], ids=["the link's address", "one of its own"])
async def test_it_begins_with_its_last_order_and_then_does_as_it_is_told(
    authority: Authority, run: Callable[[Settings], Running], address: str | None
) -> None:
    async with Control(authority) as control:
        wishes = settings(control, authority.node("n1"), address=address)
        await ended_in_order(control, run(wishes))
        port = control.port
    running = run(wishes)
    await serving(running)  # nobody listens there
    assert stat.S_IMODE(running.node.home.order.stat().st_mode) == 0o600
    (before,) = running.agent.supervisor.observed()
    async with Control(authority, port=port) as back:
        await running.told("connected")
        await back.shard("r-1.0", S.READY)
        await back.want(synced=False)
        await asyncio.sleep(0.3)
        assert running.agent.supervisor.observed() == (before,)
        back._generation = 10
        await back.want()
        async with asyncio.timeout(15):
            while running.agent.supervisor.observed():
                await asyncio.sleep(0.02)
        await running.end()
    running = run(wishes)
    await asyncio.sleep(0.5)
    assert running.agent.supervisor.observed() == ()  # the last order was: nothing


async def test_a_node_that_was_removed_meanwhile_ends_what_the_kept_order_began(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    wishes = settings(control, authority.node("n1"))
    await ended_in_order(control, run(wishes))
    control.refuse = Refused("certificate_revoked", "the certificate was revoked")
    running = run(wishes)
    await running.told("refused")
    async with asyncio.timeout(15):
        while any(s.state is not S.STOPPED for s in running.agent.supervisor.observed()):
            await asyncio.sleep(0.02)
    assert not running.node.home.order.exists()
    await running.end()
    running = run(wishes)
    await asyncio.sleep(0.5)
    assert all(s.state is S.STOPPED for s in running.agent.supervisor.observed())


async def test_a_refusal_ends_nothing_that_ran_before(
    control: Control, authority: Authority, run: Callable[[Settings], Running]
) -> None:
    wishes = settings(control, authority.node("n1"))
    running = run(wishes)
    await running.told("connected")
    await control.want(tiny())
    first = await control.shard("r-1.0", S.READY)
    await running.end()
    control.refuse = Refused("certificate_revoked", "the certificate was revoked")
    running = run(wishes)
    await running.told("refused")
    await asyncio.sleep(0.3)
    (now,) = running.agent.supervisor.observed()
    assert (now.state, now.pid) == (S.READY, first.pid)


async def test_a_kept_order_that_is_not_the_newest_is_left(tmp_path: Path) -> None:
    home = Node(tmp_path / "home").home
    order = Desired("s", 1, 2, (tiny(),), True, ("x",))
    kept.write(home, kept.Kept(order, "10.0.0.1"))
    assert kept.read(home, (Taken("s", 1, 2),)) == kept.Kept(replace(order, synced=False), "10.0.0.1")
    for taken in ((), (Taken("s", 1, 3),), (Taken("s", 1, 2), Taken("t", 1, 1)), (Taken("t", 1, 2),)):
        assert kept.read(home, taken) is None
    home.order.write_text("{")
    assert kept.read(home, (Taken("s", 1, 2),)) is None
