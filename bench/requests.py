"""The requests that the load generator sends, as the bytes of whole HTTP messages."""

from __future__ import annotations

import json

MODEL = "bench"
PACED = "bench-paced"
"""The mock engine sends an event every 20 ms for a model with this word in its name."""
TOKENS = 64
BODY_BYTES = 10_000_000

_MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant that answers briefly and to the point."},
    {
        "role": "user",
        "content": "Summarise in two sentences what a reverse proxy does for a fleet of inference engines, "
        "and name one risk.",
    },
]


def whole(port: int, key: str) -> bytes:
    """A chat whose answer comes in one piece."""
    return _message(port, key, _chat(MODEL))


def burst(port: int, key: str) -> bytes:
    """A chat that is streamed as fast as it goes."""
    return _message(port, key, _chat(MODEL, stream=True))


def paced(port: int, key: str) -> bytes:
    """A chat that is streamed with a token every 20 ms."""
    return _message(port, key, _chat(PACED, stream=True))


def large(port: int, key: str) -> bytes:
    """A chat about a picture: 10 MB of base64 in the body, a whole answer."""
    body = _chat(MODEL)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * (BODY_BYTES // 11)}}
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
    return _message(port, key, body)


def _chat(model: str, *, stream: bool = False) -> dict[str, object]:
    body: dict[str, object] = {"model": model, "max_tokens": TOKENS, "temperature": 0.7}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | {"messages": _MESSAGES}


def _message(port: int, key: str, chat: dict[str, object]) -> bytes:
    body = json.dumps(chat, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        "User-Agent: bench",
        "Accept: */*",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
