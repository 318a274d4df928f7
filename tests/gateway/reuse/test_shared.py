"""Two edges at one Redis: one finds the other's answers, and waits for nothing when Redis is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.core import snapshot
from gateway.core.reuse.store import Entry
from gateway.core.usage import Usage
from gateway.edge import shared
from tests.gateway.conftest import _edge_process, _end
from tests.gateway.edges import EdgeProcess
from tests.gateway.reuse.test_exact import content_of, usual
from tests.gateway.reuse.worlds import SECOND, ask, said, scopes, serve, zero
from tests.gateway.upstreams import engine

SHARED = snapshot.CachePolicy(shared=True)


@pytest.fixture
def two(redis_url: str) -> Iterator[tuple[EdgeProcess, EdgeProcess]]:
    a, b = _edge_process(redis_url), _edge_process(redis_url)
    b.redis_url = a.redis_url
    a.start()
    b.start()
    yield a, b
    _end(a)
    _end(b)


async def asked(edge: EdgeProcess, body: dict[str, Any], **headers: str) -> httpx.Response:
    return await asyncio.to_thread(ask, edge, body, **headers)


async def kept(edge: EdgeProcess, count: int = 1) -> list[str]:
    """Until so many answers lie in Redis."""
    with edge.client() as client:
        for _ in range(100):
            found = [key.decode() for key in client.scan_iter(f"{shared.PREFIX}p*")]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)
    raise AssertionError(found)


async def test_one_finds_what_the_other_was_answered(two: tuple[EdgeProcess, EdgeProcess]) -> None:
    a, b = two
    async with engine(usual) as up:
        serve(a, up.port, cache=SHARED)
        b.wait_for("/ready")
        assert said(await asked(a, zero(stream=True))) == "miss"
        [name] = await kept(a)
        with a.client() as client:
            assert 0 < client.pttl(name) <= 3_600_000
        again = await asked(b, zero())
        assert (said(again), content_of(again)) == ("hit", "n1")
        assert said(await asked(b, zero(), **SECOND)) == "miss", "another project's"
        a.publish(tenancy=scopes(snapshot.Reuse(3600.0, since=time.time())))
        await asyncio.sleep(0.1)
        assert said(await asked(a, zero())) == "miss", "cleared here and in Redis"
        a.publish(policies=snapshot.Policies(cache=snapshot.CachePolicy()))


async def test_a_redis_that_hangs_or_is_gone_holds_nobody_up() -> None:
    accepted = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = shared.redis.Redis.from_url(f"redis://127.0.0.1:{port}")
    answers = shared.SharedAnswers(client)
    for most_s in (0.2, 0.01):
        began = time.monotonic()
        assert await answers.get("p", b"k") is None
        assert time.monotonic() - began < most_s
    await client.aclose()
    server.close()
    for writer in accepted:
        writer.close()
    await server.wait_closed()


async def test_redis_holds_no_more_than_it_may(redis_url: str) -> None:
    client = shared.redis.Redis.from_url(f"{redis_url}?db=13")
    await client.flushdb()
    answers = shared.SharedAnswers(client)
    for i in range(20):
        body = b"".join(b"%x" % (hash((i, n)) & 0xFFFFFFFF) for n in range(200))
        await answers._keep(b"k%d" % i, Entry("p", "m", body, time.time(), Usage(1, 2, None)), 60.0 + i, 5000)
    total = int(await client.get(f"{shared.PREFIX}bytes") or 0)
    assert 3000 < total <= 5000
    assert await client.zcard(f"{shared.PREFIX}index") == len(await client.keys(f"{shared.PREFIX}p:*")) < 20
    newest = await answers.get("p", b"k19")
    assert newest is not None
    assert (newest.body, newest.usage) == (body, Usage(1, 2, None))
    assert await answers.get("p", b"k0") is None
    await client.set(f"{shared.PREFIX}p:{b'k19'.hex()}", b"of another version")
    assert await answers.get("p", b"k19") is None
    await client.flushdb()
    await client.aclose()
