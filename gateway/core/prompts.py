"""How many tokens a request's prompt is, before an engine has counted them. Pure.

Four bytes of ASCII text, two characters of any other, 1 500 a picture, and four for what a template puts around each
message. Rather too high than too low; how far off it is for a model, the ledger learns from that model's own counts.
"""

from __future__ import annotations

from typing import Any

import msgspec

MESSAGE_TOKENS = 4
PICTURE_TOKENS = 1500
_PICTURES = ("image_url", "image", "input_image")


def message(content: Any) -> int:
    """`content`: text, parts (with `type` and `text`), None, or undecoded JSON."""
    if type(content) is str:
        return MESSAGE_TOKENS + text(content)
    tokens = MESSAGE_TOKENS
    if isinstance(content, list):
        for part in content:
            tokens += PICTURE_TOKENS if part.type in _PICTURES else len(memoryview(part.text)) // 4 + 1
    elif content is not None:
        tokens += len(memoryview(content)) // 4 + 1
    return tokens


def text(said: str) -> int:
    return (len(said) + 3) // 4 if said.isascii() else (len(said) + 1) // 2


def plain(value: bytes) -> int:
    """Of a completion's prompt or an embedding's input, as JSON: a text, tokens, or a list of either."""
    if value.startswith(b"["):
        inner = value[1:].lstrip()[:1]
        if inner not in (b'"', b"["):
            return value.count(b",") + 1
        if inner == b"[":
            return value.count(b",") + 1
    try:
        found = msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return len(value) // 4 + 1
    texts = found if isinstance(found, list) else [found]
    return sum(text(t) for t in texts if isinstance(t, str))
