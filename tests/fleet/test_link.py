"""The link process, by real websockets: who is let in, what goes down, what comes up."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from agent.wire import codec
from agent.wire.messages import Answer, Desired, Question, Refused, Report, Settings, Welcome
from agent.wire.shard import ShardState
from catalog.models import Model
from fleet import events, models, passes, questions, selectors
from fleet.actions import certificates, nodes
from fleet.link import consumer
from fleet.link.server import PATH, application
from fleet.link.sessions import Sessions
from llmgw.cluster import pki
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.settings import DEFAULT
from llmgw.cluster.errors import Conflict, Invalid
from tests.fleet.agents import Agent, Papers, papers
from tests.fleet.links import Link

pytestmark = pytest.mark.slow


def tiny(minimum: int = 1, **profile: object) -> None:
    """A model that any node of these tests can run."""
    run = {"name": "cpu", "engine": "llamacpp", "memory_bytes": 1024**3, "cpu_cores": 1, **profile}
    definition = {
        "name": "tiny",
        "source": "starter:tiny",
        "profiles": [{"run": run}],
        "scaling": {"min": minimum, "max": minimum},
    }
    Model.objects.update_or_create(name="tiny", defaults={"definition": definition})


async def until(check: Callable[[], bool], timeout_s: float = 8.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not await sync_to_async(check)():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.05)


def node(node_id: str = "n1") -> models.Node:
    return models.Node.objects.get(node_id=node_id)


async def test_a_node_joins_runs_a_model_and_stops_it(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    await sync_to_async(tiny)()
    async with Agent(cert, link.port) as agent:
        first = await agent.join()
        assert first.shards == ()
        passed = await sync_to_async(passes.run)()
        assert passed.nodes == {"n1"}
        desired = await agent.expect(Desired)
        assert [s.model for s in desired.shards] == ["tiny"]
        assert desired.synced
        spec = desired.shards[0]
        assert spec.key == selectors.world.engine_key(spec.replica_id)

        agent.run(spec, ShardState.LOADING)
        await agent.beat()
        await until(lambda: selectors.replica(spec.replica_id)["state"] == "loading")
        assert (await sync_to_async(selectors.model_states)())["tiny"].state == "loading"
        agent.run(spec, ShardState.READY)
        await agent.beat()
        await until(lambda: selectors.replica(spec.replica_id)["state"] == "ready")
        served = await sync_to_async(selectors.endpoints)()
        assert [(e.replica, e.host, e.port, e.node) for e in served] == [
            (spec.replica_id, "127.0.0.1", spec.port, "n1")
        ]
        assert (await sync_to_async(selectors.model_states)())["tiny"].state == "serving"

        await sync_to_async(lambda: Model.objects.update(stopped=True))()
        await sync_to_async(passes.run)()
        assert (await sync_to_async(selectors.endpoints)())[0].draining
        replica = await sync_to_async(models.Replica.objects.get)()
        replica.state_since -= timezone.timedelta(seconds=60)
        await replica.asave()
        await sync_to_async(passes.run)()
        desired = await agent.expect(Desired)
        while desired.shards:
            desired = await agent.expect(Desired)
        agent.shards.clear()
        await agent.beat()
        await until(lambda: not models.Replica.objects.exists())
        history = [e["state"] for e in await sync_to_async(selectors.events)(spec.replica_id)]
        assert history == ["ended", "stopping", "draining", "ready", "loading", "starting"]


async def test_tls_refuses_whoever_has_no_certificate_of_the_authority(link: Link, tmp_path: Path) -> None:
    await sync_to_async(papers)("n1", tmp_path)
    url = f"wss://127.0.0.1:{link.port}/agent/link"
    bare = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with pytest.raises((ssl.SSLError, OSError, ConnectionClosed, InvalidHandshake)):
        async with connect(url, ssl=bare, open_timeout=5) as socket:
            await socket.recv()
    server_only = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    folder = settings.MACHINE.pki_dir
    server_only.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    with pytest.raises((ssl.SSLError, OSError, ConnectionClosed, InvalidHandshake)):
        async with connect(url, ssl=server_only, open_timeout=5) as socket:
            await socket.recv()


async def test_tls_refuses_a_foreign_authority(link: Link, tmp_path: Path) -> None:
    await sync_to_async(papers)("n1", tmp_path)
    foreign = pki.ensure_authority(tmp_path / "foreign")
    key = pki.new_key()
    pki.write(tmp_path / "key.pem", pki.key_pem(key), 0o600)
    pki.write(tmp_path / "cert.pem", pki.issue(foreign, key.public_key(), "n1").pem, 0o600)
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with pytest.raises((ssl.SSLError, OSError, ConnectionClosed, InvalidHandshake)):
        async with connect(f"wss://127.0.0.1:{link.port}/agent/link", ssl=context, open_timeout=5) as socket:
            await socket.recv()


async def test_refusals_say_why_and_close(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port, node_id="n2") as agent:
        refused = await agent.hello()
        assert isinstance(refused, Refused)
        assert refused.code == "wrong_node_id"
        assert "n1's" in refused.sentence
        with pytest.raises(ConnectionClosed):
            await agent.hear()
    for fields, code in [
        ({"protocol": 0, "oldest": 0}, "protocol_too_old"),
        ({"protocol": 99, "oldest": 99}, "protocol_too_new"),
    ]:
        async with Agent(cert, link.port) as agent:
            refused = await agent.hello(**fields)
            assert isinstance(refused, Refused)
            assert refused.code == code
    async with Agent(cert, link.port) as agent:
        await agent.beat()
        assert (await agent.expect(Refused)).code == "no_hello"
    async with Agent(cert, link.port) as agent:
        await agent.socket.send("no message of ours")
        assert (await agent.expect(Refused)).code == "bad_message"
    assert not await models.Node.objects.aexists()


async def test_a_revoked_certificate_closes_the_live_socket_and_is_refused_after(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        begun = time.monotonic()
        await sync_to_async(certificates.revoke)(which="n1", actor="test", reason="stolen")
        refused = await agent.expect(Refused)
        assert refused.code == "certificate_revoked"
        assert time.monotonic() - begun < 3
        with pytest.raises(ConnectionClosed):
            await agent.hear()
    async with Agent(cert, link.port) as agent:
        refused = await agent.hello()
        assert isinstance(refused, Refused)
        assert "stolen" in refused.sentence
        assert refused.retry_s is None


async def test_two_agents_with_one_id(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port, instance="first") as first:
        await first.join()
        async with Agent(cert, link.port, instance="second") as second:
            refused = await second.hello()
            assert isinstance(refused, Refused)
            assert refused.code == "duplicate_node"
            assert refused.retry_s
        async with Agent(cert, link.port, instance="first") as again:
            await again.join()
            assert (await first.expect(Refused)).code == "replaced"
            await again.beat()
            await until(lambda: node().connected)


async def test_a_message_over_the_cap_ends_the_connection(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        await agent.socket.send(b"x" * (codec.MAX_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await agent.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_a_question_is_answered_through_the_link(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        asked = asyncio.ensure_future(sync_to_async(questions.ask)("n1", "log", {"lines": 5}))
        question = await agent.expect(Question)
        assert question.args == {"lines": 5}
        await agent.say(Answer(question.id, True, {"lines": ["one"]}))
        assert (await asked).body == {"lines": ["one"]}


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_link_that_ends_and_comes_back_adopts_what_runs(link: Link, tmp_path: Path, how: str) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    await sync_to_async(tiny)()
    async with Agent(cert, link.port) as agent:
        await agent.join()
        await sync_to_async(passes.run)()
        spec = (await agent.expect(Desired)).shards[0]
        agent.run(spec, ShardState.READY)
        await agent.beat()
        await until(lambda: bool(selectors.endpoints()))
        getattr(link, how)()
    assert len(await sync_to_async(selectors.endpoints)()) == 1  # engines go on serving
    assert (await sync_to_async(passes.run)()).steps == 0
    await sync_to_async(link.start)()
    async with Agent(cert, link.port) as back:
        back.shards = agent.shards
        desired = await back.join(generation=agent.desired.generation if agent.desired else None)
        assert [s.shard_id for s in desired.shards] == [spec.shard_id]
        assert desired.shards[0].incarnation == spec.incarnation
        passed = await sync_to_async(passes.run)()
        assert passed.steps == 0
        assert isinstance(back.welcome, Welcome)


async def test_the_link_stops_within_five_seconds(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        assert await sync_to_async(link.stop)() < 6
    assert not (await models.Node.objects.aget(node_id="n1")).connected


async def test_an_unknown_message_is_skipped_and_a_removed_node_is_refused(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        await agent.socket.send(b'{"v": 1, "t": "from-the-future", "b": {}}')
        await agent.beat()
        await sync_to_async(nodes.remove)(node_id="n1", actor="test")
        assert (await agent.expect(Refused)).code in ("certificate_revoked", "unknown_node")
    async with Agent(cert, link.port) as agent:
        refused = await agent.hello()
        assert isinstance(refused, Refused)
        assert "the node was removed" in refused.sentence
    assert not await models.Node.objects.aexists()


async def test_who_says_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "HELLO_S", 0.2)
    silent = WebsocketCommunicator(application(Sessions(), "here"), PATH)
    await silent.connect()
    refused = codec.decode(await silent.receive_from(timeout=5))
    assert isinstance(refused, Refused)
    assert refused.code == "no_hello"
    assert (await silent.receive_output(timeout=5))["type"] == "websocket.close"


async def test_pings_are_answered_while_the_store_is_busy(link: Link, tmp_path: Path) -> None:
    """An agent that waits in vain for its pong takes the link for dead, and comes again with all it has to tell."""
    await sync_to_async(tiny)()
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        await sync_to_async(passes.run)()
        spec = (await agent.expect(Desired)).shards[0]
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            with transaction.atomic():
                models.Node.objects.update(last_seen=timezone.now())
                events.serialise()
                held.set()
                free.wait(10)
            connection.close()

        busy = threading.Thread(target=hold)
        busy.start()
        try:
            await asyncio.to_thread(held.wait, 5)
            for state in (ShardState.STARTING, ShardState.LOADING, ShardState.READY):
                agent.run(spec, state)
                await agent.beat()
            await asyncio.wait_for(await agent.socket.ping(), 3)
            assert not await models.Replica.objects.filter(state="ready").aexists()
        finally:
            free.set()
            await asyncio.to_thread(busy.join, 5)
        await until(lambda: models.Replica.objects.filter(state="ready").exists())


async def test_figures_are_written_without_news(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        for _ in range(3):
            await agent.beat()
        await until(lambda: node().load_1m == 0.5)
        assert (await sync_to_async(selectors.node)("n1"))["memory_free_bytes"] == 20 * 1024**3


async def test_settings_reach_a_connected_agent_within_seconds(link: Link, tmp_path: Path) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    put = sync_to_async(cluster_settings.put)
    await put(path="agents.default.labels", value={"rack": "a", "site": "x"}, actor="test")
    async with Agent(cert, link.port) as agent:
        await agent.join()
        assert agent.welcome is not None
        assert (agent.welcome.heartbeat_s, agent.welcome.settings["labels"]) == (2.0, {"rack": "a", "site": "x"})
        await put(path="agents.nodes.n1", value={"heartbeat_s": 1, "labels": {"rack": "b"}}, actor="test")
        told = await agent.expect(Settings, timeout_s=4)
        while told.heartbeat_s != 1.0:  # first it is told of engines, as it has told of itself
            told = await agent.expect(Settings, timeout_s=4)
        assert told.settings["labels"] == {"rack": "b", "site": "x"}
        await put(path="agents.nodes.n2.heartbeat_s", value=3, actor="test")  # nothing of this one's
        await put(path="fleet.heartbeat_s", value=4, actor="test")
        await put(path="agents.nodes.n1.heartbeat_s", value=DEFAULT, actor="test")
        told = await agent.expect(Settings, timeout_s=4)
        while told.heartbeat_s != 4.0:
            told = await agent.expect(Settings, timeout_s=4)
        with pytest.raises(Invalid):
            await put(path="agents.default.heartbeat_s", value="often", actor="test")
        with pytest.raises(TimeoutError):
            await agent.expect(Settings, timeout_s=1.5)


async def test_a_node_is_told_of_its_engines_once_it_has_told_of_itself_and_whenever_they_change(
    link: Link, tmp_path: Path
) -> None:
    cert = await sync_to_async(papers)("n1", tmp_path)
    overrides = [{"labels": {"role": "gguf"}, "engines": {"vllm": ""}}]
    await sync_to_async(cluster_settings.put)(path="engine_overrides", value=overrides, actor="test")

    async def told(agent: Agent) -> dict[str, Any]:
        return (await agent.expect(Settings, timeout_s=4)).settings

    async with Agent(cert, link.port) as agent:
        await agent.join()
        assert agent.welcome is not None
        assert "engines" not in agent.welcome.settings
        assert agent.told is not None
        assert agent.told.settings["engines"] == {"llamacpp": "b10991", "vllm": "0.30.0", "sglang": ""}
        await sync_to_async(nodes.label)(node_id="n1", changes={"role": "gguf"}, actor="test")
        assert (await told(agent))["engines"]["vllm"] == ""
        await sync_to_async(nodes.engine_build)(node_id="n1", engine="llamacpp", build="vulkan", actor="test")
        assert (await told(agent))["engine_builds"] == {"llamacpp": "vulkan"}
    async with Agent(cert, link.port) as again:
        await again.join()
        assert again.welcome is not None
        assert again.welcome.settings["engine_builds"] == {"llamacpp": "vulkan"}


async def test_one_agents_nonsense_costs_its_own_connection_and_no_other(link: Link, tmp_path: Path) -> None:
    first = await sync_to_async(papers)("n1", tmp_path / "1")
    second = await sync_to_async(papers)("n2", tmp_path / "2")
    await sync_to_async(tiny)()
    async with Agent(first, link.port) as bad, Agent(second, link.port) as good:
        await bad.join()
        await good.join()
        await bad.say(Report(replace(bad.facts, memory_free_bytes=2**80)))
        with pytest.raises(ConnectionClosed):
            await bad.expect(Refused)
        await until(lambda: not node("n1").connected)
        await sync_to_async(passes.run)()
        assert (await good.expect(Desired)).shards
    async with Agent(first, link.port) as back:
        await back.join()
        await until(lambda: node("n1").connected)


async def test_an_agent_that_reads_nothing_holds_up_nobody(link: Link, tmp_path: Path) -> None:
    first = await sync_to_async(papers)("n1", tmp_path / "1")
    second = await sync_to_async(papers)("n2", tmp_path / "2")
    async with Agent(first, link.port) as stuck, Agent(second, link.port) as good:
        await stuck.join()
        await good.join()
        stuck.socket.transport.pause_reading()
        for _ in range(6):
            with pytest.raises(Conflict, match="did not answer"):
                await sync_to_async(questions.ask)("n1", "log", {"x": "x" * 2_000_000}, timeout_s=0.1)
        await sync_to_async(cluster_settings.put)(path="fleet.heartbeat_s", value=3, actor="test")
        await asyncio.sleep(0.5)
        begun = time.monotonic()
        await sync_to_async(nodes.remove)(node_id="n2", actor="test")
        await good.expect(Refused)
        assert time.monotonic() - begun < 6
        stuck.socket.transport.abort()


async def test_nodes_that_come_back_at_once_are_connected(link: Link, tmp_path: Path) -> None:
    """The end of an old connection may be written after the beginning of the new one."""
    names = [f"n{n}" for n in range(12)]
    certs = [await sync_to_async(papers)(name, tmp_path / name) for name in names]

    async def come_and_go(cert: Papers) -> Agent:
        for turn in range(4):
            agent = await Agent(cert, link.port, f"i-{turn}").__aenter__()
            await agent.join()
            if turn < 3:
                await agent.socket.close()
        return agent

    agents = await asyncio.gather(*(come_and_go(cert) for cert in certs))
    await asyncio.sleep(1.5)
    assert await sync_to_async(models.Node.objects.filter(connected=True).count)() == len(names)
    for agent in agents:
        await agent.socket.close()
    await until(lambda: not models.Node.objects.filter(connected=True).exists())
