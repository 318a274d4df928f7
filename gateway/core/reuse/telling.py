"""A whole answer told as a stream: one chunk a choice, the counts where they were asked for, `[DONE]`. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.request import CHAT
from gateway.core.sieve import DONE

_object = msgspec.json.Decoder(dict[str, Any])


def stream(endpoint: str, body: bytes, wants_usage: bool) -> bytes:
    """`body` is a whole answer that was kept."""
    found = _object.decode(body)
    choices, usage = found.pop("choices"), found.pop("usage", None)
    if endpoint == CHAT:
        found["object"] = "chat.completion.chunk"
    told = [{**found, "choices": [_chunk(choice) if endpoint == CHAT else choice]} for choice in choices]
    if wants_usage and usage is not None:
        told.append({**found, "choices": [], "usage": usage})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(each) for each in told) + DONE


def _chunk(choice: dict[str, Any]) -> dict[str, Any]:
    """Its message as a delta; each tool call is told its place, which a message leaves to their order."""
    delta = {name: value for name, value in choice["message"].items() if value is not None}
    calls = delta.get("tool_calls")
    if calls:
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
    return {"index": choice.get("index", 0), "delta": delta} | {
        name: value for name, value in choice.items() if name not in ("index", "message")
    }
