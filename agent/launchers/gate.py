"""The key's gate before an engine's own server, for engines that leave paths open or know no key: an ASGI middleware.

It runs in the engine's interpreter, whatever its version, and imports nothing but what every Python has. The key
comes from `LLMGW_ENGINE_KEY`; without one the engine does not start.
"""

from __future__ import annotations

import hmac
import os
from typing import Any

_OPEN = ("/health",)
_ANSWER = b'{"error":{"message":"this engine answers only llmgw","type":"authentication_error","code":"unauthorized"}}'


class Gate:
    """Every path but `/health` demands `Authorization: Bearer KEY`. `app` is what stands behind it."""

    def __init__(self, app: Any, key: str | None = None) -> None:
        key = os.environ.get("LLMGW_ENGINE_KEY", "") if key is None else key
        if not key:
            raise RuntimeError("LLMGW_ENGINE_KEY is not set, and an engine without a key would answer anybody")
        self._app = app
        self._wanted = b"Bearer " + key.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = scope["type"]
        if kind == "lifespan" or (kind == "http" and scope["path"] in _OPEN) or self._knows(scope):
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": _ANSWER})

    def _knows(self, scope: Any) -> bool:
        given = [value for name, value in scope.get("headers", ()) if name.lower() == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._wanted)
