"""One edge process for most tests of the gateway; each publishes the snapshot that it needs."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from llmgw.keys import engine_key
from tests.gateway.edges import AUTH, EdgeProcess

ROOT = Path(__file__).resolve().parents[2]
_databases = itertools.count()
"""Of Redis: 1 is the shared edge's for the whole run, 2 to 12 go round among edges that live for a test; tests that
bring no edge have 13 to 15."""


def _edge_process(redis_url: str, database: int = 0) -> EdgeProcess:
    home = Path(tempfile.mkdtemp(prefix="llmgw-edge-"))
    url = f"{redis_url}?db={database or next(_databases) % 11 + 2}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return EdgeProcess(home, url)


def _end(edge: EdgeProcess) -> None:
    if edge.process is not None and edge.process.poll() is None:
        edge.kill(signal.SIGKILL)
    shutil.rmtree(edge.home, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_edge(redis_url: str) -> Iterator[EdgeProcess]:
    edge = _edge_process(redis_url, 1)
    edge.start()
    yield edge
    _end(edge)


@pytest.fixture
def edge(shared_edge: EdgeProcess) -> EdgeProcess:
    """The shared process: no test may kill it."""
    return shared_edge


@pytest.fixture
def own_edge(redis_url: str) -> Iterator[EdgeProcess]:
    """A process of the test's own, not started yet."""
    edge = _edge_process(redis_url)
    yield edge
    _end(edge)


@pytest.fixture(scope="session")
def weights() -> Path:
    return ROOT / "agent" / "starter" / "tiny.gguf"


Launch = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def launch(weights: Path) -> Iterator[Launch]:
    """Start a real llama.cpp server: launch(port, replica, secret) → its process, ready."""
    started: list[subprocess.Popen[bytes]] = []

    def start(port: int, replica: str, secret: str, *flags: str) -> subprocess.Popen[bytes]:
        process = llamacpp(weights, port, engine_key(secret, replica), *flags)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def llamacpp(weights: Path, port: int, key: str, *flags: str) -> subprocess.Popen[bytes]:
    launcher = [sys.executable, "-m", "agent.launchers.llamacpp_server"]
    options = ["--model", str(weights), "--alias", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    sizes = ["--ctx-size", "4096", "--parallel", "2", "--threads", "1", "--metrics"]
    process = subprocess.Popen(
        [*launcher, *options, *sizes, *flags],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "LLAMA_API_KEY": key},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while True:
        assert process.poll() is None, "llama.cpp ended at once"
        try:
            found = httpx.get(
                f"http://127.0.0.1:{port}/v1/models", headers={"authorization": f"Bearer {key}"}, timeout=2
            )
            if found.status_code == 200:
                return process
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline, "llama.cpp did not come up in 20 s"
        time.sleep(0.05)


@pytest.fixture
async def http(edge: EdgeProcess) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the usual key, towards the shared edge."""
    async with httpx.AsyncClient(base_url=edge.url, headers=AUTH, timeout=15, verify=False) as client:
        yield client
