"""Django, as ASGI: the portal, the admin API, everything that is not the inference path.

`application` alone serves everything in one process, by path: the edge in front of Django.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.core.asgi import get_asgi_application

from gateway.edge.app import Edge
from llmgw import machine

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class OneProcess:
    """The edge for the inference path and its probes, Django for the rest. Some servers (daphne) say nothing of
    their lifespan: the edge then starts with the first request that is for it."""

    def __init__(self, web: Any) -> None:
        self._web = web
        self._edge: Edge | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and _is_inference(scope["path"]):
            await (await self._started())(scope, receive, send)
        else:
            await self._web(_unforwarded(scope), receive, send)

    async def _started(self) -> Edge:
        async with self._starting:
            if self._edge is None:
                edge = Edge(machine.require(), f"one-{os.getpid()}-{secrets.token_hex(4)}")
                await edge.start()
                self._edge = edge
        return self._edge

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._started()
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._edge is not None:
                    await self._edge.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _is_inference(path: str) -> bool:
    return path == "/v1" or path.startswith("/v1/") or path in ("/health", "/ready")


def _unforwarded(scope: Scope) -> Scope:
    """Without what a client says of proxies: here nobody has verified it."""
    if "headers" not in scope:
        return scope
    return {**scope, "headers": [(n, v) for n, v in scope["headers"] if not n.startswith(b"x-forwarded-")]}


django = get_asgi_application()
application = OneProcess(django)
