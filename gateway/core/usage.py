"""Token counts as the engine gave them, found by a byte search; JSON is parsed only there. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.core import shapes
from gateway.core.value import Value

MARK = b'"usage"'
_BRACE = re.compile(rb"[{}]")
_BYTES_A_TOKEN = 4


class Usage(Value, frozen=True):
    """None: the engine did not say."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None


def of(counts: Any) -> Usage | None:
    """From the value of a `usage` field; None where it counts nothing."""
    if not isinstance(counts, dict):
        return None
    prompt, completion = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    details = counts.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(prompt, completion, cached)


def find(body: bytes) -> Usage | None:
    """In a whole JSON answer, without parsing the rest of it."""
    at = body.rfind(MARK)
    while at >= 0:
        start = body.find(b"{", at, at + 16)
        if start >= 0 and body[at + len(MARK) : start].strip() == b":":
            end = _end_of_object(body, start)
            if end and (found := _decode(body[start:end])) is not None:
                return found
        at = body.rfind(MARK, 0, at)
    return None


def without(data: bytes) -> bytes:
    """A chunk's JSON without its `usage` key, every other value byte for byte."""
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    fields.pop("usage", None)
    return msgspec.json.encode(fields)


def estimate_prompt(body: bytes) -> int:
    """Tokens of a request's texts, at four bytes each: for rows that are marked estimated."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0
    if not isinstance(found, dict):
        return 0
    texts = _texts(found.get("messages") or found.get("prompt") or found.get("input"))
    return -(-texts // _BYTES_A_TOKEN)


def estimate_answer(body: bytes) -> int:
    """Tokens of a whole answer's texts."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0
    choices = found.get("choices") if isinstance(found, dict) else None
    return -(-_texts(choices) // _BYTES_A_TOKEN)


_COUNTED = frozenset(
    {"content", "text", "arguments", "reasoning", "reasoning_content", "message", "tool_calls", "function"}
)


def _texts(value: Any) -> int:
    """Bytes of text; a picture's data is none."""
    if isinstance(value, str):
        return len(value.encode(errors="replace"))
    if isinstance(value, list):
        return sum(_texts(v) for v in value)
    if isinstance(value, dict):
        return sum(_texts(v) for k, v in value.items() if k in _COUNTED)
    return 0


def _decode(data: bytes) -> Usage | None:
    """The usual shape at once; anything else field by field."""
    try:
        found = shapes.counts.decode(data)
    except (msgspec.MsgspecError, ValueError):
        return _odd(data)
    return usual(found)


def usual(found: shapes.Counts) -> Usage | None:
    """From counts in their usual shape; None where they count nothing."""
    prompt, completion, details = found.prompt_tokens, found.completion_tokens, found.prompt_tokens_details
    if prompt is None and completion is None:
        return None
    return Usage(_sane(prompt), _sane(completion), _sane(details.cached_tokens) if details is not None else None)


def _sane(count: int | None) -> int | None:
    """A figure that no request can have is not known."""
    return count if count is not None and 0 <= count < 2**31 else None


def _odd(data: bytes) -> Usage | None:
    try:
        return of(msgspec.json.decode(data))
    except (msgspec.MsgspecError, ValueError):
        return None


def _end_of_object(body: bytes, start: int) -> int:
    depth = 0
    for brace in _BRACE.finditer(body, start, start + 4096):
        depth += 1 if brace[0] == b"{" else -1
        if depth == 0:
            return brace.end()
    return 0


def _count(value: Any) -> int | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return _sane(int(value)) if plain and 0 <= value < 2**31 else None
