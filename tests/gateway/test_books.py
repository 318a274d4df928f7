"""The books: every request leaves one row, whatever is killed, shipped twice or full."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from gateway import selectors
from gateway.control.ingesting import ingest
from gateway.control.journal import journals, only_shipper
from gateway.core.record import Intent, Settlement
from gateway.edge.spool import Spool
from gateway.models import Usage
from tests.gateway.edges import AUTH, EdgeProcess, chat, endpoint
from tests.gateway.upstreams import DONE, HEAD, Call, answer, delta, engine, finish, usage

CHAT = "/v1/chat/completions"
END = finish() + usage() + DONE


def intent(name: str, at: float = 1.7e9, **fields: str) -> Intent:
    return Intent(name, at, "chat", "tiny", "tiny", True, edge="e", **fields)


def settled(name: str) -> Settlement:
    return Settlement(name, "ok", 200, 12.5, 3.5, "r-1", "n-1", 11, 2, 1, route="the only replica")


@pytest.mark.django_db
def test_a_row_is_shipped_once_and_segments_go(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "edge-1", segment_bytes=300)
    for n in range(10):
        spool.intend(intent(f"req_{n}", project="p", key="k"))
        spool.settle(settled(f"req_{n}"))
    spool.intend(intent("req_open"))
    assert len(list(tmp_path.glob("*.jsonl"))) > 3
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*.jsonl")}
    assert ingest(tmp_path) == 10
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    assert ingest(tmp_path) == 0
    for name, data in before.items():  # a shipper that died before it wrote down how far it was
        (tmp_path / name).write_bytes(data)
    (tmp_path / "edge-1.progress").unlink()
    ingest(tmp_path)
    assert Usage.objects.count() == 10
    row = selectors.request("req_3")
    assert (row["outcome"], row["prompt_tokens"], row["cached_tokens"], row["route"]) == (
        "ok",
        11,
        1,
        "the only replica",
    )
    spool.settle(settled("req_open"))
    assert ingest(tmp_path) == 1
    spool.close()
    assert ingest(tmp_path) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["shipper.lock"]


@pytest.mark.django_db
def test_a_dead_edge_leaves_rows_marked_estimated_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "edge-1")
    spool.intend(intent("req_1"))
    spool.settle(settled("req_1"))
    spool.intend(intent("req_2"))
    os.write(spool._fd, b'{"i":{"id":"req_3","at":17')  # killed while it wrote
    assert ingest(tmp_path) == 1
    os.close(spool._lock)  # as the kernel does for a dead process
    assert ingest(tmp_path) == 1
    assert ingest(tmp_path) == 0
    rows = {u.request_id: (u.outcome, u.estimated) for u in Usage.objects.all()}
    assert rows == {"req_1": ("ok", False), "req_2": ("unknown", True)}
    assert not journals(tmp_path)


@pytest.mark.django_db
def test_a_row_that_does_not_fit_holds_up_no_other(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "edge-1")
    for n, asked in enumerate(("plain", "with a \0 in it", "x" * 500)):
        spool.intend(replace(intent(f"req_{n}", project="p"), asked=asked))
        spool.settle(settled(f"req_{n}"))
    spool.intend(intent("req_odd", project="p" * 60))
    spool.settle(replace(settled("req_odd"), completion_tokens=2**70))
    spool.close()
    ingest(tmp_path)
    kept = {u.request_id: u.asked for u in Usage.objects.filter(request_id__in=["req_0", "req_1", "req_2"])}
    assert kept == {"req_0": "plain", "req_1": "with a  in it", "req_2": "x" * 120}
    assert not journals(tmp_path)


def test_one_shipper_at_a_time(tmp_path: Path) -> None:
    with only_shipper(tmp_path) as first, only_shipper(tmp_path) as second:
        assert (first, second) == (True, False)


@pytest.mark.django_db
def test_use_by_day(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "edge-1")
    now = time.time()
    for n in range(3):
        spool.intend(intent(f"req_{n}", at=now - 86400 * n, project="p", key="k"))
        spool.settle(settled(f"req_{n}"))
    ingest(tmp_path)
    spool.close()
    days = selectors.by_day(days=2, project="p")
    assert [(d["requests"], d["completion_tokens"]) for d in days] == [(1, 2), (1, 2)]
    assert [d["requests"] for d in selectors.by_day(days=2, project="q")] == [0, 0]
    assert [r["request_id"] for r in selectors.recent(limit=2)] == ["req_0", "req_1"]


@pytest.mark.django_db
def test_an_edge_killed_in_mid_stream(own_edge: EdgeProcess) -> None:
    own_edge.start()
    request_id = asyncio.run(_killed_in_mid_stream(own_edge))
    spool = own_edge.home / "spool"
    assert ingest(spool) == 1
    row = Usage.objects.get(request_id=request_id)
    assert (row.outcome, row.estimated, row.model, row.key, row.project) == ("unknown", True, "orchid-8b", "k1", "p1")
    own_edge.start()
    assert ingest(spool) == 0
    assert Usage.objects.count() == 1
    own_edge.wait_for("/ready")  # from its disk and Redis, at once


async def _killed_in_mid_stream(edge: EdgeProcess) -> str:
    async def script(call: Call) -> None:
        await call.raw(HEAD)
        await call.piece(delta("a"))
        await asyncio.sleep(10)

    async with engine(script) as up:
        edge.serve(endpoint(up.port))
        http = httpx.AsyncClient(base_url=edge.url, headers=AUTH)
        async with http, http.stream("POST", CHAT, json=chat(stream=True)) as found:
            pieces = found.aiter_raw()
            await anext(pieces)
            edge.kill()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(pieces)
        await asyncio.wait_for(up.calls[0].gone.wait(), 2)
    return str(found.headers["x-request-id"])


async def test_a_full_disk_refuses_and_recovers(own_edge: EdgeProcess) -> None:
    """Serving what cannot be accounted for is not allowed; the settlement that could not be written is not lost."""
    gate = asyncio.Event()

    async def script(call: Call) -> None:
        if call.number == 2:
            await gate.wait()
        await call.whole(answer())

    own_edge.start()
    async with engine(script) as up, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH) as http:
        own_edge.serve(endpoint(up.port))
        assert (await http.post(CHAT, json=chat())).status_code == 200
        slow = asyncio.ensure_future(http.post(CHAT, json=chat()))
        while len(up.calls) < 2:
            await asyncio.sleep(0.01)
        size = sum(p.stat().st_size for p in (own_edge.home / "spool").glob("*.jsonl"))
        no_limit = resource.prlimit(own_edge.pid, resource.RLIMIT_FSIZE, (size + 40, resource.RLIM_INFINITY))
        refused = await http.post(CHAT, json=chat())
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "books_closed"
        assert len(up.calls) == 2
        gate.set()
        held = await slow
        assert held.status_code == 200
        assert own_edge.books()[held.headers["x-request-id"]][1] is None
        resource.prlimit(own_edge.pid, resource.RLIMIT_FSIZE, no_limit)
        assert own_edge.settlement(held.headers["x-request-id"]).outcome == "ok"
        assert (await http.post(CHAT, json=chat())).status_code == 200


async def test_a_stop_settles_what_is_under_way(own_edge: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("a"), end=False)
        await asyncio.sleep(0.5 if call.number == 1 else 20)
        await call.piece(END)
        await call.raw(b"0\r\n\r\n")

    own_edge.start()
    async with engine(script) as up, httpx.AsyncClient(base_url=own_edge.url, headers=AUTH, timeout=10) as http:
        own_edge.serve(endpoint(up.port))
        short = asyncio.ensure_future(http.post(CHAT, json=chat(stream=True)))
        while len(up.calls) < 1:
            await asyncio.sleep(0.01)
        long = asyncio.ensure_future(http.post(CHAT, json=chat(stream=True)))
        while len(up.calls) < 2:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        code = await asyncio.to_thread(own_edge.kill, signal.SIGTERM)
        assert time.monotonic() - began < 6
        assert code == 0, own_edge.words()
        assert (await short).content.endswith(b"data: [DONE]\n\n")
        cut = await long
        assert b"gateway_stopping" in cut.content
    assert own_edge.settlement(cut.headers["x-request-id"]).code == "gateway_stopping"
    assert all(s is not None for _, s in own_edge.books().values())
