"""Several edges before one engine: they share the room through what they tell one another each second."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmgw.keys import engine_key
from tests.gateway.admission.test_door import CHAT, auth, said, serve, until
from tests.gateway.conftest import Launch
from tests.gateway.edges import EdgeProcess, chat, endpoint
from tests.gateway.test_real_engine import free_port
from tests.gateway.upstreams import Call, answer, engine

ROOM = 4


@pytest.fixture
def pair(own_edge: EdgeProcess) -> Iterator[tuple[EdgeProcess, EdgeProcess]]:
    other = EdgeProcess(Path(tempfile.mkdtemp(prefix="llmgw-edge-")), own_edge.redis_url)
    own_edge.start()
    other.start()
    yield own_edge, other
    other.kill(signal.SIGKILL)
    shutil.rmtree(other.home, ignore_errors=True)


async def test_the_room_is_shared_by_weight_and_no_edge_starves(pair: tuple[EdgeProcess, EdgeProcess]) -> None:
    at_once, most, late = 0, {"early": 0, "late": 0}, {"a": 0, "b": 0}
    began = 0.0
    over = False

    async def script(call: Call) -> None:
        nonlocal at_once, began
        began = began or time.monotonic()
        at_once += 1
        settled = time.monotonic() - began > 2.5
        most["late" if settled else "early"] = max(at_once, most["late" if settled else "early"])
        if settled:
            late[call.json["messages"][0]["content"]] += 1
        await asyncio.sleep(0.05)
        at_once -= 1
        await call.whole(answer())

    async def flood(http: httpx.AsyncClient, name: str) -> None:
        while not over:
            assert (await http.post(CHAT, json=said(name), headers=auth(name))).status_code == 200

    def client(edge: EdgeProcess) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=edge.url, timeout=20, verify=False)

    async with engine(script) as up, client(pair[0]) as one, client(pair[1]) as two:
        serve(pair[0], endpoint(up.port, parallel=ROOM), queue_overcommit=1)
        await asyncio.to_thread(pair[1].wait_for, "/ready")
        tasks = [asyncio.ensure_future(flood(one, "a")) for _ in range(8)]
        tasks += [asyncio.ensure_future(flood(two, "b")) for _ in range(8)]
        await until(lambda: sum(late.values()) >= 150, 20)
        over = True
        await asyncio.gather(*tasks)
    assert most["early"] <= 2 * ROOM, "edges × room, until they have heard of each other"
    assert most["late"] <= ROOM + 1
    assert late["b"] / sum(late.values()) == pytest.approx(0.75, abs=0.1), "by the projects' weights"


@pytest.mark.slow
async def test_a_real_engine_gets_what_it_has_places_for(own_edge: EdgeProcess, launch: Launch) -> None:
    """llama.cpp with two places: its own queue stays short, better bands pass, who leaves frees the place."""
    port = free_port()
    own_edge.start()
    secret = (own_edge.home / "secrets" / "engine").read_text().strip()
    replica = "r-00000000aa"
    launch(port, replica, secret)
    key = {"authorization": f"Bearer {engine_key(secret, replica)}"}
    serve(own_edge, endpoint(port, replica, parallel=2))
    deepest, done, over = 0, [], False

    async def watch() -> None:
        nonlocal deepest
        async with httpx.AsyncClient(timeout=5) as http:
            while not over:
                text = (await http.get(f"http://127.0.0.1:{port}/metrics", headers=key)).text
                waiting = [line for line in text.splitlines() if line.startswith("llamacpp:requests_deferred ")]
                deepest = max(deepest, int(float(waiting[0].split()[1])))
                await asyncio.sleep(0.02)

    async def one(http: httpx.AsyncClient, name: str) -> None:
        body = chat(messages=[{"role": "user", "content": f"Tell me of {name}."}], max_tokens=400, ignore_eos=True)
        found = await http.post(CHAT, json=body, headers=auth(name))
        assert found.status_code == 200, found.text
        done.append(name)

    async with httpx.AsyncClient(base_url=own_edge.url, timeout=40, verify=False) as http:
        watching = asyncio.ensure_future(watch())
        tasks = [asyncio.ensure_future(one(http, "s")) for _ in range(12)]
        await asyncio.sleep(0.1)
        gone = asyncio.ensure_future(one(http, "a"))
        await asyncio.sleep(0.05)
        gone.cancel()
        tasks += [asyncio.ensure_future(one(http, "i")) for _ in range(4)]
        await asyncio.gather(*tasks)
        over = True
        await watching
    assert sorted(done) == ["i"] * 4 + ["s"] * 12
    assert deepest <= 2, "its own queue holds the overcommit, and one that comes before it has put away the last"
    assert max(n for n, name in enumerate(done) if name == "i") <= 9, done
