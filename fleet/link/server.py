"""The link's server: uvicorn that asks every client for a certificate of the cluster's authority."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from channels.db import database_sync_to_async

from agent.wire import codec
from fleet import bootstrap
from fleet.core.hearing import LEASE as LINK_LEASE
from fleet.link.consumer import AgentConsumer
from fleet.link.hearing import Hearing
from fleet.link.protocol import PeerProtocol
from fleet.link.rounds import Rounds
from fleet.link.sessions import Sessions
from llmgw import metrics
from llmgw.cluster import changes
from llmgw.machine import Machine

PATH = "/agent/link"
STOP_S = 5
RELOAD_S = 60.0
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def listening_socket(machine: Machine) -> socket.socket:
    """The supervisor's, by its descriptor number in LLMGW_LISTEN_FD; else our own on the machine's link port."""
    passed = os.environ.get("LLMGW_LISTEN_FD")
    if passed:
        return socket.socket(fileno=int(passed))
    family = socket.AF_INET6 if ":" in machine.host else socket.AF_INET
    own = socket.socket(family, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.bind((machine.host, machine.link_port))
    return own


def context(pki: Path) -> ssl.SSLContext:
    """TLS 1.2 or later; a client without a certificate of the authority gets no further than the handshake."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(pki / "server.pem", pki / "server-key.pem")
    made.load_verify_locations(pki / "ca.pem")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def application(sessions: Sessions, link: str) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The ASGI application: one path, one consumer a connection."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == PATH:
            await AgentConsumer(sessions, link)(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4404})
        elif scope["type"] == "http":
            body = f"agents connect here by websocket, at {PATH}\n".encode()
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": body})

    return app


async def serve(machine: Machine) -> None:
    """Until SIGTERM or SIGINT; then at most `STOP_S` seconds more."""
    store_id = await database_sync_to_async(bootstrap.ensure)(machine)
    listener = listening_socket(machine)
    host, port = listener.getsockname()[:2]
    link = f"{LINK_LEASE}:{socket.gethostname()}:{port}"[:60]
    sessions = Sessions()
    holder = f"link-{os.getpid()}-{secrets.token_hex(4)}"
    rounds, hearing = Rounds(sessions, link, holder, store_id), Hearing(sessions, link, holder)
    await database_sync_to_async(rounds.begin)()
    changes.tell_aside()
    tls = context(machine.pki_dir)
    config = uvicorn.Config(
        application(sessions, link),
        ws=PeerProtocol,
        ws_max_size=codec.MAX_BYTES,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        ws_per_message_deflate=False,
        ssl_certfile=machine.pki_dir / "server.pem",
        ssl_keyfile=machine.pki_dir / "server-key.pem",
        ssl_context_factory=lambda config, default: tls,
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=STOP_S,
    )
    server = uvicorn.Server(config)
    beside = [
        asyncio.create_task(work)
        for work in (
            hearing.run(),
            rounds.run(),
            rounds.listen(machine.redis_url),
            sessions.figures.run(machine.redis_url),
            _reload(tls, machine.pki_dir),
        )
    ]
    metrics.push_from_thread("link", machine.redis_url)
    print(f"agent link on {host}:{port}", flush=True)
    try:
        await server.serve(sockets=[listener])
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_last(hearing, rounds), 3)
        hearing.close()


async def _last(hearing: Hearing, rounds: Rounds) -> None:
    """What a link that stops in order still writes."""
    await hearing.write()
    await rounds.finish()


async def _reload(tls: ssl.SSLContext, pki: Path) -> None:
    """A certificate that was issued anew serves the next handshake: no restart."""
    seen = (pki / "server.pem").stat().st_mtime_ns
    while True:
        await asyncio.sleep(RELOAD_S)
        with contextlib.suppress(OSError, ssl.SSLError):
            now = (pki / "server.pem").stat().st_mtime_ns
            if now != seen:
                tls.load_cert_chain(pki / "server.pem", pki / "server-key.pem")
                seen = now
