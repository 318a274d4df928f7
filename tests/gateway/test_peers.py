"""A machine that vanishes in the midst of an exchange: its cable is pulled, and it answers nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gateway.edge import peers
from gateway.edge import pool as pools
from gateway.edge.pool import Pool
from gateway.edge.upstream import Connection, UpstreamError

HERE, THERE = "10.77.95.1", "10.77.95.2"
ENGINE = (
    f"import socket, time; s = socket.create_server(('{THERE}', 8080)); print('up', flush=True); c, _ = s.accept();"
    " c.recv(65536); c.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: 100\\r\\n\\r\\nhello'); time.sleep(60)"
)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def cable() -> Iterator[str]:
    """The end, here, of a cable to a machine with an engine that begins to answer and goes on for ever."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    name, device = f"llmgw-p-{os.getpid()}", f"vp{os.getpid()}"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as e:
        pytest.skip(f"no network namespace can be made here: {e.stderr.strip()}")
    engine = None
    try:
        _ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("addr", "add", f"{HERE}/24", "dev", device)
        _ip("link", "set", device, "up")
        _ip("-n", name, "addr", "add", f"{THERE}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        command = ["ip", "netns", "exec", name, sys.executable, "-c", ENGINE]
        engine = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"up\n"
        yield name
    finally:
        if engine is not None:
            engine.kill()
            engine.wait()
            if engine.stdout is not None:
                engine.stdout.close()
        for made in (("link", "del", device), ("netns", "del", name)):
            subprocess.run(["ip", *made], check=False, capture_output=True)


@pytest.mark.parametrize("sending", [False, True])
async def test_an_exchange_with_a_machine_that_vanished_ends(
    cable: str, sending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers.watch, "__defaults__", (2.0,))
    monkeypatch.setattr(peers.gone, "__defaults__", (2.0,))
    monkeypatch.setattr(pools, "LOOK_S", 0.0)
    loop = asyncio.get_running_loop()
    pool = Pool(THERE, 8080)
    connection = await _connected(pool)
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    assert await connection.head(loop.time() + 5)
    assert await connection.read(loop.time() + 5) == b"hello"
    pool.retire()
    await asyncio.sleep(1.2)
    pool.sweep(loop.time())
    assert pool.open, "an engine that is silent is there all the same"
    _ip("-n", cable, "link", "set", "eth0", "down")
    began = time.monotonic()
    if sending:
        await connection.write(b"more")
    sweeping = asyncio.create_task(_sweep(pool))
    try:
        with pytest.raises(UpstreamError, match="has not answered anything"):
            await connection.read(loop.time() + 10)
    finally:
        sweeping.cancel()
    assert time.monotonic() - began < 5
    assert not pool.open


async def _connected(pool: Pool) -> Connection:
    """A new cable carries nothing for its first second."""
    for _ in range(3):
        with contextlib.suppress(OSError):
            return await pool.connect(3)
    return await pool.connect(3)


async def _sweep(pool: Pool) -> None:
    while True:
        pool.sweep(asyncio.get_running_loop().time())
        await asyncio.sleep(0.1)
