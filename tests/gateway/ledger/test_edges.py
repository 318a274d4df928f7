"""Real edges on one ledger: together they are as one, and nothing that breaks lets more through or holds for ever."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.core.ledger import keys
from gateway.core.snapshot import Catalog, Endpoints, LevelLimits, Policies
from tests.gateway.cases.test_keys import counted
from tests.gateway.cases.test_keys import until as soon
from tests.gateway.edges import AUTH, EdgeProcess, chat, endpoint
from tests.gateway.ledger.store import Store
from tests.gateway.ledger.world import UNIT, held, level, model, money, purse, serve, tenancy
from tests.gateway.upstreams import Call, engine


async def until(true: object, timeout_s: float = 10) -> None:
    """Several processes and a Redis that starts anew: a busy machine may take its time."""
    await soon(true, timeout_s)


@pytest.fixture(scope="module")
def own_store() -> Iterator[Store]:
    found = Store()
    found.start()
    yield found
    found.end()


@pytest.fixture(scope="module")
def pair(own_store: Store) -> Iterator[list[EdgeProcess]]:
    found = [EdgeProcess(Path(tempfile.mkdtemp(prefix="llmgw-edge-")), own_store.url) for _ in range(2)]
    yield found
    for edge in found:
        if edge.process is not None and edge.process.poll() is None:
            edge.kill(signal.SIGKILL)
        shutil.rmtree(edge.home, ignore_errors=True)


@pytest.fixture
def edges(pair: list[EdgeProcess], own_store: Store) -> list[EdgeProcess]:
    """Two that have heard of one another, on a Redis of their own; whatever the test before did to them."""
    started = [edge for edge in pair if edge.process is None or edge.process.poll() is not None]
    for edge in started:
        edge.start(wait=False)
    for edge in pair:
        edge.wait_for("/health")
    deadline = time.monotonic() + 10
    with own_store.client() as client:
        while len(client.hkeys("llmgw:edges")) < 2 or client.zcard(keys.EDGES) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    if started:
        time.sleep(1.2)  # each tells the others once a second
    return pair


def publish(edges: list[EdgeProcess], port: int, *levels: LevelLimits, **policies: object) -> None:
    serve(edges[0], [endpoint(port)], list(levels), model(completion=1_000_000), policies=policies)
    for edge in edges[1:]:
        edge.publish(
            tenancy=tenancy(*levels),
            catalog=Catalog(models={"orchid-8b": model(completion=1_000_000)}),
            endpoints=Endpoints(endpoints=(endpoint(port),)),
            policies=Policies(**policies),  # type: ignore[arg-type]
        )


async def storm(edges: list[EdgeProcess], count: int, **fields: object) -> Counter[int]:
    """`count` requests at once, turn by turn to each edge."""
    async with httpx.AsyncClient(headers=AUTH, timeout=15, limits=httpx.Limits(max_connections=200)) as client:
        calls = [
            client.post(f"{edges[i % len(edges)].url}/v1/chat/completions", json=chat(max_tokens=40, **fields))
            for i in range(count)
        ]
        return Counter(a.status_code for a in await asyncio.gather(*calls))


async def forget_outages(edges: list[EdgeProcess], port: int) -> None:
    """An allowance is good for a minute's outages; the test before had some of it."""
    publish(edges, port, level("key", rpm=1000), window_s=0.1)
    assert await storm(edges, 4) == {200: 4}


async def quick(call: Call) -> None:
    await asyncio.sleep(0.05)
    await call.whole(counted(10, 40))


@pytest.mark.slow
async def test_two_edges_are_as_one(edges: list[EdgeProcess]) -> None:
    """90 % of a budget is spent, and a storm comes; then one on requests, and one on tokens."""
    budget = level("project", budget=UNIT)
    async with engine(quick) as upstream:
        publish(edges, upstream.port, budget)
        with edges[0].client() as client:
            client.hset(purse(budget), "s", 9 * UNIT // 10)
        assert await storm(edges, 40) == {200: 2, 429: 38}
        await until(lambda: money(edges[0], budget) == (98 * UNIT // 100, 0))

        publish(edges, upstream.port, level("organisation", rpm=7))
        assert await storm(edges, 40) == {200: 7, 429: 33}

        tokens = level("team", tpm=455)
        publish(edges, upstream.port, tokens)
        found = await storm(edges, 40)
        assert found[200] in (9, 10)  # 45 are held for each, and 50 used by those that have ended
        assert found[200] + found[429] == 40

        at_once = level("key", concurrent=3)
        publish(edges, upstream.port, at_once)
        assert (await storm(edges, 12))[200] == 3
        await until(lambda: held(edges[0], at_once) == (0, 0))


@pytest.mark.slow
async def test_a_killed_edge_gives_back(edges: list[EdgeProcess]) -> None:
    async def never(call: Call) -> None:
        await call.gone.wait()

    limit = level("key", concurrent=4, tpm=1000, budget=UNIT)
    async with engine(never) as upstream:
        publish(edges, upstream.port, limit)
        storms = asyncio.create_task(storm(edges[:1], 4))
        await until(lambda: held(edges[0], limit) == (4, 4 * 45))
        assert (await storm(edges[1:], 1)) == {429: 1}
        edges[0].kill(signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            await storms
        await until(lambda: held(edges[1], limit) == (0, 0), 15)
        assert money(edges[1], limit) == (0, 0)


@pytest.mark.slow
async def test_redis_is_killed_while_requests_run(edges: list[EdgeProcess], own_store: Store) -> None:
    """It comes back with what it had on disk; what it lost of the last second is told again, once."""
    release = asyncio.Event()

    async def waits(call: Call) -> None:
        await release.wait()
        await call.whole(counted(10, 40))

    limit = level("key", concurrent=20, rpm=100, budget=UNIT)
    async with engine(waits) as upstream:
        publish(edges, upstream.port, limit)
        running = asyncio.create_task(storm(edges, 10))
        await until(lambda: held(edges[0], limit)[0] == 10)
        own_store.kill()
        own_store.start()
        await until(lambda: held(edges[0], limit)[0] == 10)
        await until(lambda: money(edges[0], limit) == (0, 400_000_000))
        own_store.kill()
        release.set()  # these settle while it is away
        assert await running == {200: 10}
        own_store.start()
        await until(lambda: money(edges[0], limit) == (400_000_000, 0))
        assert held(edges[0], limit)[0] == 0
        assert await storm(edges, 40) == {200: 15, 429: 25}
        await until(lambda: money(edges[0], limit) == (UNIT, 0))


@pytest.mark.slow
async def test_an_emptied_redis_hears_what_is_held(edges: list[EdgeProcess], own_store: Store) -> None:
    """And of a budget nobody can say what is spent: the allowance holds until it is seeded."""
    release = asyncio.Event()

    async def waits(call: Call) -> None:
        if b"now" not in call.body:
            await release.wait()
        await call.whole(counted(10, 40))

    # A budget of no other test's: what those settled within the journal's seconds is rightly told again as well.
    limit = level("organisation", concurrent=20, budget=UNIT)
    async with engine(waits) as upstream:
        publish(edges, upstream.port, limit, ledger_away_s=3.0)
        running = asyncio.create_task(storm(edges, 10))
        await until(lambda: held(edges[0], limit)[0] == 10)
        own_store.kill()
        own_store.empty()
        own_store.start()
        await until(lambda: held(edges[0], limit)[0] == 10)
        await until(lambda: money(edges[0], limit) == (0, 400_000_000))
        found = await storm(edges, 40, user="now")  # half of what was left for each, as it last heard
        assert 0 < found[200] <= 20
        assert set(found) <= {200, 429, 503}
        release.set()
        await running
        await until(lambda: money(edges[0], limit) == ((10 + found[200]) * 40_000_000, 0))
        with edges[0].client() as client:
            client.hset(purse(limit), "k", 1)
        assert (await storm(edges, 40, user="now"))[200] == max(0, 25 - 10 - found[200])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "hanging"])
async def test_redis_is_away(edges: list[EdgeProcess], own_store: Store, how: str) -> None:
    """Half of each limit for each edge, and no longer than is said; then nothing, with a sentence."""
    limit = level("key", rpm=20)
    async with engine(quick) as upstream:
        await forget_outages(edges, upstream.port)
        publish(edges, upstream.port, limit, ledger_away_s=1.0)
        assert await storm(edges, 1) == {200: 1}
        own_store.kill() if how == "killed" else own_store.hang()
        began = time.monotonic()
        found = await storm(edges, 40)  # the shares of edges that are gone for less than a minute are nobody's
        assert 12 <= found[200] <= 20
        assert found[200] + found[503] == 40
        assert time.monotonic() - began < 2
        await asyncio.sleep(1.1)
        async with httpx.AsyncClient(base_url=edges[0].url, headers=AUTH) as client:
            refused = await client.post("/v1/chat/completions", json=chat())
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["error"]["code"] == "ledger_away"
        own_store.start() if how == "killed" else own_store.go_on()
        await until(lambda: edges[0].get("/ready")[0] == 200)
        await asyncio.sleep(1.0)
        # What was admitted meanwhile has been told; some of it twice, where Redis woke up to what nobody waited for.
        assert (await storm(edges, 40))[200] <= 20 - 1 - found[200] + (found[200] == 20)


@pytest.mark.slow
async def test_redis_is_away_and_all_is_refused(edges: list[EdgeProcess], own_store: Store) -> None:
    async with engine(quick) as upstream:
        publish(edges, upstream.port, level("key", rpm=100), ledger_away="refuse")
        own_store.kill()
        assert await storm(edges, 4) == {503: 4}
        own_store.start()
        publish(edges, upstream.port, level("key", rpm=100), ledger_away="refuse")
        await asyncio.sleep(1.0)
        assert await storm(edges, 4) == {200: 4}
