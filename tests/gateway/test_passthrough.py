"""Everything that is not the inference path, to a web process over its unix socket and back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn

from llmgw import machine
from tests.gateway.edges import EdgeProcess


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Says what it got; some paths behave."""
    path, size = scope["path"], 0

    async def answer(status: int, headers: list[tuple[bytes, bytes]], *pieces: bytes, gap_s: float = 0) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(gap_s)
        await send({"type": "http.response.body", "body": b""})

    if path == "/redirect":
        await answer(302, [(b"location", b"/there?a=1"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")])
        return
    if path == "/events":
        await answer(
            200, [(b"content-type", b"text/event-stream")], *[b"data: %d\n\n" % n for n in range(4)], gap_s=0.1
        )
        return
    if path == "/for-ever":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        return
    if path == "/dies":
        raise SystemExit("never mind")
    more = True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    said = {
        "method": scope["method"],
        "target": scope["raw_path"].decode() + "?" + scope["query_string"].decode(),
        "headers": [[n.decode(), v.decode()] for n, v in scope["headers"]],
        "size": size,
    }
    body = json.dumps(said).encode()
    await answer(200, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))], body)


gone = asyncio.Event()


@contextlib.asynccontextmanager
async def web(edge: EdgeProcess) -> AsyncIterator[None]:
    this = machine.read({"LLMGW_HOME": str(edge.home)})
    assert isinstance(this, machine.Machine)
    this.run_dir.mkdir(parents=True, exist_ok=True)
    config = uvicorn.Config(app, uds=str(this.web_socket), ws="none", lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        await task
        this.web_socket.unlink(missing_ok=True)


def headers(found: httpx.Response, name: str) -> list[str]:
    return [v for n, v in found.json()["headers"] if n == name]


async def test_who_calls_cannot_be_forged(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    forged = {
        "x-forwarded-for": "6.6.6.6",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "evil.example",
        "forwarded": "for=6.6.6.6",
        "x-real-ip": "6.6.6.6",
        "x-llmgw-admin": "1",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "cookie": "s=1",
        "host": "llm.example.com",
    }
    async with web(edge):
        found = await http.get("/some%20path/%C3%A9?q=a%26b&c", headers=forged)
    assert found.json()["target"] == "/some%20path/%C3%A9?q=a%26b&c"
    assert headers(found, "x-forwarded-for") == ["127.0.0.1"]
    assert headers(found, "x-forwarded-proto") == ["http"]
    assert headers(found, "x-forwarded-host") == headers(found, "host") == ["llm.example.com"]
    for name in ("forwarded", "x-real-ip", "x-llmgw-admin", "x-hop", "te", "connection"):
        assert headers(found, name) == []
    assert headers(found, "cookie") == ["s=1"]
    assert headers(found, "authorization")


async def test_a_trusted_proxy_says_who_calls(own_edge: EdgeProcess) -> None:
    own_edge.start(LLMGW_TRUSTED_PROXIES="127.0.0.0/8")
    told = {"x-forwarded-for": "6.6.6.6, 192.0.2.7", "x-forwarded-proto": "https", "host": "llm.example.com"}
    async with web(own_edge), httpx.AsyncClient(base_url=own_edge.url) as http:
        found = await http.get("/", headers=told)
    assert headers(found, "x-forwarded-for") == ["192.0.2.7"]
    assert headers(found, "x-forwarded-proto") == ["https"]


async def test_uploads_redirects_and_head(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 100_000

    edge.serve(max_body_bytes=6_000_000)
    async with web(edge):
        assert (await http.post("/up", content=b"y" * 5_000_000)).json()["size"] == 5_000_000
        assert (await http.put("/up", content=pieces())).json()["size"] == 5_000_000
        assert (await http.post("/up")).json()["size"] == 0
        assert (await http.delete("/up")).json()["method"] == "DELETE"
        for body in (b"y" * 7_000_000, _more(pieces)):
            refused = await http.post("/up", content=body)
            assert refused.status_code == 413
        moved = await http.get("/redirect")
        assert (moved.status_code, moved.headers["location"]) == (302, "/there?a=1")
        assert moved.headers.get_list("set-cookie") == ["a=1", "b=2"]
        head = await http.head("/up")
        assert head.content == b""
        assert int(head.headers["content-length"]) > 100
        for _ in range(3):
            assert (await http.get("/again")).status_code == 200


async def _more(pieces: Any) -> AsyncIterator[bytes]:
    for _ in range(2):
        async for piece in pieces():
            yield piece


async def test_events_come_as_they_are_sent(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    loop = asyncio.get_running_loop()
    async with web(edge):
        came = []
        async with http.stream("GET", "/events") as found:
            async for data in found.aiter_raw():
                came.append((loop.time(), data))
    assert b"".join(d for _, d in came) == b"data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n"
    assert came[-1][0] - came[0][0] > 0.2


async def test_a_browser_that_leaves(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gone.clear()
    async with web(edge):
        async with http.stream("GET", "/for-ever") as found:
            await anext(found.aiter_raw())
        await asyncio.wait_for(gone.wait(), 2)


@pytest.mark.parametrize(
    ("accept", "kind"), [("text/html,*/*", "text/html; charset=utf-8"), ("*/*", "application/json")]
)
async def test_while_web_is_away(edge: EdgeProcess, http: httpx.AsyncClient, accept: str, kind: str) -> None:
    found = await http.get("/admin/", headers={"accept": accept})
    assert found.status_code == 503
    assert found.headers["content-type"] == kind
    assert found.headers["retry-after"] == "2"
    assert "not running at the moment" in found.text
    assert (await http.get("/health")).status_code == 200


async def test_web_comes_back_on_a_kept_connection(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    for _ in range(2):
        async with web(edge):
            assert (await http.get("/x")).status_code == 200
