"""What the gateway refuses or fails with: a tree whose members know their status, code and OpenAI's JSON shape."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec


class GatewayError(Exception):
    """An answer that is an error. `sentence` is what the client reads: no address, no secret."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    outcome: ClassVar[str] = "refused"
    elsewhere: ClassVar[bool] = False
    """It says that this model cannot answer now: another one may, in its place."""

    def __init__(self, sentence: str, *, code: str = "", param: str | None = None, retry_after_s: int | None = None):
        super().__init__(sentence)
        self.sentence = sentence
        self.name = code or self.code
        self.param = param
        self.retry_after_s = retry_after_s
        self.answer = self.status

    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.retry_after_s is None:
            return []
        return [(b"retry-after", b"%d" % max(1, self.retry_after_s))]

    def body(self) -> bytes:
        """`{"error": {"message", "type", "param", "code"}}`."""
        return msgspec.json.encode({"error": self.fields()})

    def fields(self) -> dict[str, Any]:
        return {"message": self.sentence, "type": self.kind, "param": self.param, "code": self.name}

    def event(self) -> bytes:
        """The same as the last event of a stream that has begun."""
        return b"data: " + self.body() + b"\n\n"


class BadRequest(GatewayError):
    status, kind, code = 400, "invalid_request_error", "invalid_request"


class WrongKey(GatewayError):
    status, kind, code = 401, "invalid_request_error", "invalid_api_key"

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"www-authenticate", b"Bearer")]


class NotAllowed(GatewayError):
    status, kind, code = 403, "invalid_request_error", "model_forbidden"


class UnknownModel(GatewayError):
    status, kind, code = 404, "invalid_request_error", "model_not_found"


class UnknownPath(GatewayError):
    status, kind, code = 404, "invalid_request_error", "unknown_url"


class WrongMethod(GatewayError):
    status, kind, code = 405, "invalid_request_error", "method_not_allowed"

    def __init__(self, sentence: str, allowed: str):
        super().__init__(sentence)
        self.allowed = allowed

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"allow", self.allowed.encode())]


class TooSlow(GatewayError):
    status, kind, code = 408, "invalid_request_error", "request_timeout"


class TooLarge(GatewayError):
    status, kind, code = 413, "invalid_request_error", "request_too_large"


class Unavailable(GatewayError):
    """No replica can take it now: loading, parked, stopped, no capacity, or the books cannot be kept."""

    status, kind, code, elsewhere = 503, "server_error", "model_unavailable", True


class KeysBusy(GatewayError):
    """Every key of an external model asked for a pause."""

    status, kind, code, elsewhere = 429, "rate_limit_exceeded", "provider_busy", True


class EngineFailed(GatewayError):
    status, kind, code, outcome, elsewhere = 502, "server_error", "engine_failed", "engine_failed", True


class EngineTimedOut(GatewayError):
    status, kind, code, outcome, elsewhere = 504, "server_error", "engine_timeout", "timed_out", True


class EngineRefused(GatewayError):
    """The engine found the request wrong: its own words and status, in OpenAI's shape."""

    status, kind, code = 400, "invalid_request_error", "engine_refused"

    def __init__(self, status: int, sentence: str, kind: str, code: str | None, extra: dict[str, Any]):
        super().__init__(sentence, code=code or "")
        self.answer = status
        self._kind, self._code, self._extra = kind, code, extra

    def fields(self) -> dict[str, Any]:
        return {"message": self.sentence, "type": self._kind, "param": None, "code": self._code, **self._extra}


_ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://[^\s\"'<>]+)"  # a URL
    r"|(?:\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b)"  # IPv4, with a port or without
    r"|(?:\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\](?::\d{1,5})?)"  # [IPv6]
    r"|(?:\b(?:localhost|[\w-]+(?:\.[\w-]+)+):\d{2,5}\b)",  # host:port
)


def scrub(text: str, most: int = 500) -> str:
    """`text` without addresses, in at most `most` characters: what an engine said, fit for a client."""
    return _ADDRESS.sub("…", text)[:most]


_CODES = {"exceed_context_size_error": "context_length_exceeded"}
_EXTRA = ("n_prompt_tokens", "n_ctx")


def from_engine(status: int, body: bytes) -> EngineRefused:
    """An engine's 4xx in our shape; llama.cpp's, vLLM's and plain text are understood."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = None
    inner = found.get("error", found) if isinstance(found, dict) else None
    if isinstance(inner, str):
        inner = {"message": inner}
    if not isinstance(inner, dict):
        inner = {}
    message = inner.get("message") or inner.get("detail") or f"the engine refused the request with status {status}"
    kind = inner.get("type")
    kind = kind if isinstance(kind, str) else "invalid_request_error"
    code = inner.get("code")
    code = code if isinstance(code, str) else _CODES.get(kind)
    extra = {k: inner[k] for k in _EXTRA if isinstance(inner.get(k), int)}
    return EngineRefused(status, scrub(str(message), 2000), kind, code, extra)
