"""`llmgw.asgi:application` by itself under a real server: the inference path and the portal in one process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import own_edge  # noqa: F401 - a fixture
from tests.gateway.edges import AUTH, ROOT, EdgeProcess, chat, content, endpoint
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, usage

pytestmark = [pytest.mark.slow]
SERVERS = {
    "uvicorn": ["uvicorn", "llmgw.asgi:application", "--host", "127.0.0.1", "--log-level", "warning", "--port"],
    "daphne": ["daphne", "-b", "127.0.0.1", "-v", "0", "llmgw.asgi:application", "-p"],
}


@pytest.fixture(params=sorted(SERVERS))
def one(request: pytest.FixtureRequest, own_edge: EdgeProcess) -> Iterator[EdgeProcess]:  # noqa: F811
    """The edge's home and snapshot, served by the one process."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_")}
    env |= {
        "LLMGW_HOME": str(own_edge.home),
        "LLMGW_REDIS": own_edge.redis_url,
        "DJANGO_SETTINGS_MODULE": "llmgw.settings",
    }
    subprocess.run([sys.executable, "manage.py", "migrate", "-v", "0"], cwd=ROOT, env=env, check=True, timeout=60)
    with socket.create_server(("127.0.0.1", 0)) as free:
        own_edge.port = free.getsockname()[1]
    command = [sys.executable, "-m", *SERVERS[request.param], str(own_edge.port)]
    with Path(own_edge.home / "edge.log").open("wb") as log:
        own_edge.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    own_edge.wait_for("/health", 30)
    yield own_edge
    own_edge.process.terminate()
    own_edge.process.wait(15)


async def test_both_halves_answer(one: EdgeProcess) -> None:
    async def script(call: Call) -> None:
        end = finish() + usage() + DONE
        await (call.stream(delta("ok"), end) if call.json.get("stream") else call.whole(answer()))

    async with engine(script) as upstream, httpx.AsyncClient(base_url=one.url, timeout=20) as http:
        one.serve(endpoint(upstream.port))
        assert (await http.post("/v1/chat/completions", json=chat(), headers=AUTH)).json()["choices"]
        streamed = await http.post("/v1/chat/completions", json=chat(stream=True), headers=AUTH)
        assert content(streamed.content) == "ok"
        assert one.settlement(streamed.headers["x-request-id"]).completion_tokens == 2
        assert (await http.post("/v1/chat/completions", json=chat())).status_code == 401
        page = await http.get("/", headers={"x-forwarded-for": "6.6.6.6"}, follow_redirects=True)
        assert page.status_code == 200
        assert "<html" in page.text
        assert (await http.get("/api/v1/models")).status_code in (401, 403)
