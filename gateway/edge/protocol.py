"""uvicorn's HTTP protocol with one thing mended: a client of HTTP/1.0 gets no chunked framing, which it cannot read."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class EdgeProtocol(HttpToolsProtocol):
    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if cycle.scope["http_version"] == "1.0":
            app = _until_close(app, cycle)
        super()._start_asgi_task(cycle, app)


def _until_close(app: Any, cycle: Any) -> Any:
    """The answer's body ends with its connection, unless its length is known."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        async def plain(message: Any) -> None:
            if message["type"] == "http.response.start":
                if not any(name == b"content-length" for name, _ in message.get("headers", ())):
                    cycle.chunked_encoding = False
            elif cycle.chunked_encoding is False and cycle.expected_content_length == 0:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, plain)

    return answered
