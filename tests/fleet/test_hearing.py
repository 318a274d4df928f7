"""A silent node is lost; one whose link is late in telling is not. By values, by rows, and by the real link."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.db import connection, transaction
from django.utils import timezone

from agent.wire.messages import Desired, Message, Refused
from agent.wire.shard import ShardState
from fleet import events, models, passes, selectors
from fleet.actions import observe
from fleet.core.hearing import LEASE_S, Ears
from fleet.link.gathering import Gathering
from fleet.link.hearing import Hearing
from fleet.link.sessions import Session, Sessions
from llmgw.cluster import leases
from llmgw.cluster.models import Lease
from tests.fleet import rows
from tests.fleet.agents import Agent, papers
from tests.fleet.links import Link

LOST_S = 20.0


def test_silence_counts_as_far_as_somebody_has_told_of_it() -> None:
    late = Ears(since=0.0, told={"a": 110.0})
    assert not late.lost(link="a", last_seen=100.0, lost_s=LOST_S, now=500.0), "nobody has told of what came since"
    assert late.lost(link="a", last_seen=80.0, lost_s=LOST_S, now=500.0), "it was silent before the link was late"
    assert Ears(since=0.0, told={"a": 499.0}).lost(link="a", last_seen=100.0, lost_s=LOST_S, now=500.0)
    assert not Ears(since=490.0, told={"a": 499.0}).lost(link="a", last_seen=100.0, lost_s=LOST_S, now=500.0)
    assert not Ears().lost(link="a", last_seen=100.0, lost_s=LOST_S, now=500.0), "no link is up"


def test_the_nodes_of_a_link_that_ended_have_their_time_to_come_to_another() -> None:
    other = Ears(since=0.0, told={"b": 200.0}, ended={"a": 190.0})
    assert not other.lost(link="a", last_seen=100.0, lost_s=LOST_S, now=209.0)
    assert other.lost(link="a", last_seen=100.0, lost_s=LOST_S, now=211.0)
    assert other.lost(link="", last_seen=100.0, lost_s=LOST_S, now=200.0)


@pytest.mark.django_db
def test_a_late_link_loses_no_node_and_a_silent_node_is_lost() -> None:
    rows.link_is_up()
    rows.joined()
    replica = rows.serving()
    rows.grace_is_over()
    models.Node.objects.update(last_seen=timezone.now() - timedelta(seconds=25))

    def told(ago_s: float) -> tuple[str, str]:
        """The replica and its node, after a pass, where the link has told of what it heard until so long ago."""
        until = timezone.now() + timedelta(seconds=LEASE_S - ago_s)
        Lease.objects.filter(name=rows.LINK).update(expires_at=until)
        passes.run()
        replica.refresh_from_db()
        return replica.state, selectors.node("n1")["state"]

    assert told(LEASE_S + 1) == ("ready", "unknown"), "its lease is over: it may have ended, and nothing is decided"
    assert told(10) == ("ready", "ready"), "what it heard since may not be written yet"
    assert told(1) == ("lost", "lost")


@pytest.mark.django_db
def test_what_an_older_connection_said_last_is_not_its_nodes_word_any_more() -> None:
    rows.joined()
    since = timezone.now()
    models.Node.objects.update(connected_at=since, last_seen=since, taken_generation=None)
    earlier = observe.Beat("n1", since - timedelta(seconds=1), 7, since=since - timedelta(seconds=30))
    assert observe.beats([earlier]) == frozenset()
    node = models.Node.objects.get()
    assert (node.last_seen, node.taken_generation) == (since, None)
    observe.beats([observe.Beat("n1", since + timedelta(seconds=1), 7, since=since)])
    assert models.Node.objects.get().taken_generation == 7


def _session(node: models.Node) -> Session:
    async def nothing(message: Message) -> None: ...

    async def refuse(refused: Refused) -> None: ...

    assert node.connected_at is not None
    return Session(node.node_id, "1", "i-1", nothing, refuse, node.connected_at)


def _there() -> tuple[models.Node, leases.Tenure]:
    try:
        return models.Node.objects.get(), leases.tenures("fleet.link")[0]
    finally:
        connection.close()


_beside = database_sync_to_async(_there, thread_sensitive=False)
"""As somebody else sees it, while the thread of this process's other work is taken."""


@pytest.mark.slow
async def test_who_was_heard_is_written_while_all_else_waits_and_the_tenure_goes_on(shared_store: str) -> None:
    def prepare() -> None:
        leases.take(rows.LINK, "me", -1.0)  # the link was late: its lease is over, and nobody else took it
        rows.joined()
        models.Node.objects.update(connected_at=timezone.now(), last_seen=timezone.now() - timedelta(seconds=60))

    await database_sync_to_async(prepare)()
    node, before = await _beside()
    sessions = Sessions()
    session = _session(node)
    sessions.add(session)
    hearing = Hearing(sessions, rows.LINK, "me")
    free = threading.Event()
    stuck = asyncio.create_task(database_sync_to_async(free.wait)(10))
    try:
        await asyncio.sleep(0.05)
        session.heard.at = time.time()
        await asyncio.wait_for(hearing.write(), 5)
        node, after = await _beside()
    finally:
        free.set()
        await stuck
        hearing.close()
    assert node.last_seen == datetime.fromtimestamp(session.heard.at, UTC)
    assert sessions.spoke == {"n1"}
    assert after.taken_at == before.taken_at
    assert after.expires_at > time.time() + LEASE_S - 6


@pytest.mark.django_db
async def test_others_begin_nothing_while_it_is_written() -> None:
    sessions, done = Sessions(), list[str]()

    def work(items: Sequence[str]) -> Sequence[None]:
        done.extend(items)
        return [None] * len(items)

    gathering: Gathering[str, None] = Gathering(work, free=sessions.free)
    sessions.free.clear()
    waiting = asyncio.create_task(gathering("a report"))
    await asyncio.sleep(0.05)
    assert done == []
    sessions.free.set()
    await waiting
    assert done == ["a report"]


@pytest.mark.slow
def test_a_node_that_others_write_is_not_waited_for(shared_store: str) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; with LLMGW_TEST_STORE=postgresql this is tried")
    for name in ("n1", "n2"):
        rows.joined(name)
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            models.Node.objects.filter(node_id="n1").update(load_1m=0.1)
            held.set()
            free.wait(10)
        connection.close()

    busy = threading.Thread(target=hold)
    busy.start()
    at = timezone.now()
    try:
        assert held.wait(5)
        begun = time.monotonic()
        assert observe.beats([observe.Beat("n1", at), observe.Beat("n2", at)]) == {"n1"}
        assert time.monotonic() - begun < 2
    finally:
        free.set()
        busy.join(5)
    assert models.Node.objects.get(node_id="n2").last_seen == at
    assert observe.beats([observe.Beat("n1", at)]) == frozenset()


@pytest.mark.slow
async def test_a_node_was_heard_when_it_spoke_and_not_when_that_was_written(link: Link, tmp_path: Path) -> None:
    await sync_to_async(rows.tiny)()
    cert = await sync_to_async(papers)("n1", tmp_path)
    async with Agent(cert, link.port) as agent:
        await agent.join()
        await sync_to_async(passes.run)()
        spec = (await agent.expect(Desired)).shards[0]
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            with transaction.atomic():
                events.serialise()
                models.Node.objects.update(load_1m=0.1)
                held.set()
                free.wait(10)
            connection.close()

        busy = threading.Thread(target=hold)
        busy.start()
        try:
            await asyncio.to_thread(held.wait, 5)
            agent.run(spec, ShardState.READY)
            await agent.beat()
            spoke = time.time()
            await asyncio.sleep(1.5)
        finally:
            free.set()
            await asyncio.to_thread(busy.join, 5)
        deadline = time.monotonic() + 8
        while not await models.Replica.objects.filter(state="ready").aexists() or (await _beside())[0].load_1m != 0.5:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        seen = (await _beside())[0].last_seen
        assert seen is not None
        assert abs(seen.timestamp() - spoke) < 1.0


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a Redis that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0"


@pytest.mark.slow
async def test_a_redis_that_does_not_answer_makes_nobody_wait(
    shared_store: str, deaf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMGW_REDIS", deaf)
    running = Link()
    running.start()
    cert = await sync_to_async(papers)("n1", tmp_path)
    try:
        begun = time.monotonic()
        async with Agent(cert, running.port) as agent:
            await agent.join()
            await agent.beat()
            while (await _beside())[0].load_1m != 0.5:
                assert time.monotonic() < begun + 8
                await asyncio.sleep(0.05)
    finally:
        await asyncio.to_thread(running.close)
