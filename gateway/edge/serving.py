"""One edge process, on the descriptor in LLMGW_LISTEN_FD or an address of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator

import uvicorn

from gateway.edge.app import Edge
from gateway.edge.protocol import EdgeProtocol
from llmgw import machine

GRACE_S = 4
"""What requests under way get at a stop; with the ends of the rest it stays under five seconds."""


class Server(uvicorn.Server):
    """Signals are ours: a stop must end the spool in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once a second
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, EdgeProtocol):
                    connection.sweep(now)
        return await super().on_tick(counter)

    def _stop(self) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what is cut off at the end is no error of ours
        self.should_exit = True


def listener(this: machine.Machine) -> socket.socket:
    """The supervisor's socket, or one bound here."""
    descriptor = os.environ.get("LLMGW_LISTEN_FD")
    if descriptor:
        return socket.socket(fileno=int(descriptor))
    family = socket.AF_INET6 if ":" in this.host else socket.AF_INET
    try:
        return socket.create_server((this.host, this.port), family=family, backlog=2048, reuse_port=True)
    except OSError as e:
        raise SystemExit(f"llmgw: cannot listen on {this.host} port {this.port} ({e.strerror}): set PORT") from None


async def serve(this: machine.Machine, compiled: bool) -> None:
    """`compiled`: in which form its modules were imported."""
    edge = Edge(this, f"{socket.gethostname()[:30]}-{os.getpid()}-{int(time.time() * 1000):x}", compiled)
    config = uvicorn.Config(
        edge,
        http=EdgeProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        backlog=2048,
        timeout_graceful_shutdown=GRACE_S,
    )
    sock = listener(this)
    await edge.start()
    _collect_seldom()
    logging.getLogger(__name__).info("edge %s listens on %s", edge.id, sock.getsockname())
    try:
        await Server(config).serve(sockets=[sock])
    finally:
        await edge.stop()


def _collect_seldom() -> None:
    """A request leaves next to no cycles behind: its objects go with their last reference. Looking for some after every
    700 new objects, among all that the process began with, costs more than what is found."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
