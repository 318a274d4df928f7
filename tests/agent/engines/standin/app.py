"""What the stand-ins answer: an OpenAI-like ASGI application, with its metrics under an engine's own names."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

Metrics = Callable[["App"], str]


class App:
    """`open_paths` need no key; where `key` is None nothing does, and a middleware has to see to it."""

    def __init__(self, model: str, metrics_path: str, metrics: Metrics, key: str | None, guarded: Any) -> None:
        self.model = model
        self.running = 0
        self.answered = 0
        self._metrics_path, self._metrics = metrics_path, metrics
        self._key, self._guarded = key, guarded
        self._front: Any = self._answer

    def add_middleware(self, kind: Any, **options: Any) -> None:
        self._front = kind(self._front, **options)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        else:
            await self._front(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if self._key is not None and self._guarded(path) and _bearer(scope) != self._key:
            await _send(send, 401, {"error": "Unauthorized"})
        elif path == "/health":
            await _send(send, 200, {})
        elif path == "/v1/models":
            await _send(send, 200, {"object": "list", "data": [{"id": self.model, "object": "model"}]})
        elif path == self._metrics_path:
            await _send(send, 200, self._metrics(self))
        elif path in ("/v1/chat/completions", "/invocations"):
            await self._chat(await _body(receive), send)
        else:
            await _send(send, 404, {"error": "Not Found"})

    async def _chat(self, body: bytes, send: Any) -> None:
        asked = json.loads(body)
        self.running += 1
        await asyncio.sleep(0.02)
        self.running -= 1
        self.answered += 1
        prompt = len(str(asked["messages"]).split())
        message = {"role": "assistant", "content": "I stand in."}
        usage = {"prompt_tokens": prompt, "completion_tokens": 3, "total_tokens": prompt + 3}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        await _send(send, 200, {"id": "x", "model": self.model, "choices": [choice], "usage": usage})


def serve(app: App, host: str, port: int) -> None:
    """Until SIGTERM."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run([listener])


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _body(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _send(send: Any, status: int, what: Any) -> None:
    body = what.encode() if isinstance(what, str) else json.dumps(what).encode()
    kind = b"text/plain" if isinstance(what, str) else b"application/json"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _bearer(scope: Any) -> str:
    headers = dict(scope["headers"])
    return headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
