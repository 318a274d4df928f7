"""A request as most chat templates lay it out: the tools, then the messages in their order. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

IMAGES = ("image_url", "image", "input_image")


@dataclass(frozen=True, slots=True)
class Piece:
    """`path` is its place in the request's body. `message`: the message's index, None for a tool."""

    path: str
    text: str
    message: int | None = None
    image: bool = False
    role: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """`name` and `session` as whoever sent it calls them."""

    name: str
    session: str
    tools: tuple[Piece, ...]
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return sum(size(piece.text) for piece in (*self.tools, *self.pieces))


def read(name: str, session: str, body: dict[str, Any]) -> Prompt | None:
    """None for a body that has no prompt with an order, as one that asks for embeddings."""
    if isinstance(body.get("prompt"), str):
        return Prompt(name, session, (), (Piece("prompt", body["prompt"], 0, role="user"),))
    messages = body.get("messages")
    if not isinstance(messages, list):
        return None
    tools = body.get("tools")
    named = [Piece(f"tools[{i}]", _json(tool)) for i, tool in enumerate(tools if isinstance(tools, list) else ())]
    pieces: list[Piece] = []
    for i, message in enumerate(messages):
        if isinstance(message, dict):
            pieces += _message(i, message)
    return Prompt(name, session, tuple(named), tuple(pieces))


def size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _message(i: int, message: dict[str, Any]) -> list[Piece]:
    role, content = str(message.get("role", "")), message.get("content")
    found: list[Piece] = []
    if isinstance(content, str):
        found.append(Piece(f"messages[{i}].content", content, i, role=role))
    elif isinstance(content, list):
        for j, part in enumerate(content):
            found.append(_part(f"messages[{i}].content[{j}]", part, i, role))
    for name in ("tool_calls", "tool_call_id"):
        if message.get(name):
            found.append(Piece(f"messages[{i}].{name}", _json(message[name]), i, role=role))
    return found


def _part(path: str, part: Any, i: int, role: str) -> Piece:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return Piece(f"{path}.text", part["text"], i, role=role)
    image = isinstance(part, dict) and part.get("type") in IMAGES
    digest = hashlib.sha256(_json(part).encode(errors="replace")).hexdigest()
    return Piece(path, digest, i, image, role)


def _json(value: Any) -> str:
    """With its keys in the order in which they came, as templates write it."""
    return json.dumps(value, ensure_ascii=False)
