"""The endpoint under test, as a client reaches it: one connection a request, bytes with the time at which they came."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PATIENCE_S = 60.0
"""For an answer's next byte."""


class Unreachable(Exception):
    """Nothing answers there, or what answers is no HTTP."""


@dataclass(slots=True)
class Answer:
    """`pieces`: seconds since the request left, and what came."""

    status: int
    headers: dict[str, str]
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    cut: str = ""
    """Why the body ended before its end."""

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def streams(self) -> bool:
        return self.status == 200 and self.kind == "text/event-stream"

    def said(self) -> str:
        """Status and the error's own words, in short."""
        found = self.json
        error = found.get("error", found) if isinstance(found, dict) else None
        words = error.get("message") if isinstance(error, dict) else None
        return f"{self.status}" + (f" ({str(words)[:120]})" if words else "")


class Target:
    """`url` ends before or after `/v1`. The key goes into the Authorization header and nowhere else."""

    def __init__(self, url: str, key: str = "", model: str = "") -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"'{url}' is no http or https address")
        self.tls = parts.scheme == "https"
        self.host, self.port = parts.hostname, parts.port or (443 if self.tls else 80)
        self.root = parts.path.rstrip("/").removesuffix("/v1")
        self._key = key
        self.model = model

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def hides_key(self, text: bytes) -> bool:
        return not self._key or self._key.encode() not in text

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        patience_s: float = PATIENCE_S,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request, read to its end. `body`: JSON, or bytes as they are. `key`: another than the endpoint's, or
        an empty one for none. Raises `Unreachable`."""
        connection, began = self._connect(patience_s), time.monotonic()
        try:
            connection.request(method, self.root + path, _bytes(body), self._headers(key, headers))
            found = connection.getresponse()
            answer = Answer(found.status, {k.lower(): v for k, v in found.getheaders()})
            try:
                while data := found.read1(65536):
                    answer.pieces.append((time.monotonic() - began, data))
            except (OSError, http.client.HTTPException) as e:
                answer.cut = type(e).__name__
            return answer
        except (OSError, http.client.HTTPException) as e:
            raise Unreachable(f"{method} {path}: {type(e).__name__}") from None
        finally:
            connection.close()

    def begin(self, path: str, body: Any) -> Waiting:
        """A request whose answer may never be read."""
        connection = self._connect(PATIENCE_S)
        try:
            connection.request("POST", self.root + path, _bytes(body), self._headers(None, None))
        except OSError as e:
            raise Unreachable(f"POST {path}: {type(e).__name__}") from None
        assert connection.sock is not None
        return Waiting(connection.sock)

    def chat(self, **fields: Any) -> dict[str, Any]:
        said = [{"role": "user", "content": "Say hello."}]
        return {"model": self.model, "messages": said, "temperature": 0, "max_tokens": 16, **fields}

    def completion(self, **fields: Any) -> dict[str, Any]:
        return {"model": self.model, "prompt": "Hello", "temperature": 0, "max_tokens": 8, **fields}

    def _headers(self, key: str | None, more: dict[str, str] | None) -> dict[str, str]:
        used = self._key if key is None else key
        found = {"Content-Type": "application/json", "Accept": "*/*", "Connection": "close", **(more or {})}
        return {**found, "Authorization": f"Bearer {used}"} if used else found

    def _connect(self, patience_s: float) -> http.client.HTTPConnection:
        if self.tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self.port, timeout=patience_s, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=patience_s)


class Waiting:
    """A request under way, by its socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def first(self, within_s: float) -> bytes:
        """Whatever comes first; empty when nothing does."""
        self._sock.settimeout(within_s)
        try:
            return self._sock.recv(65536)
        except OSError:
            return b""

    def leave(self) -> None:
        self._sock.close()


def _bytes(body: Any) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
