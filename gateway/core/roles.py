"""Instructions as a model's template takes them: one system message, first. Pure.

Coding agents send theirs with the role `developer`, which most templates refuse, as they refuse a system message that
is not the first. Nothing of it is lost: texts follow one another in their order.
"""

from __future__ import annotations

from typing import Any

import msgspec

SYSTEM, DEVELOPER = "system", "developer"
_messages = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def instructions_first(messages: bytes) -> bytes:
    """The JSON of a chat's messages with all instructions in one leading system message; every other message byte for
    byte as it came."""
    told: list[Any] = []
    rest: list[dict[str, Any]] = []
    for message in _messages.decode(messages):
        role = msgspec.json.decode(message.get("role", msgspec.Raw(b"null")))
        if role in (SYSTEM, DEVELOPER):
            told.append(msgspec.json.decode(message.get("content", msgspec.Raw(b"null"))))
        else:
            rest.append(message)
    return msgspec.json.encode([{"role": SYSTEM, "content": _joined(told)}, *rest])


def _joined(told: list[Any]) -> str | list[Any]:
    """One text; where a part is no text, the parts of all of them."""
    parts = [p for content in told for p in (content if isinstance(content, list) else [_part(content)])]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if len(texts) == len(parts):
        return "\n\n".join(text for text in texts if text)
    return parts


def _part(content: Any) -> dict[str, Any]:
    return {"type": "text", "text": content if isinstance(content, str) else ""}
