"""A streamed answer put back together, as the engine would have given it whole. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core import chunk, sse
from gateway.core.request import CHAT

_OBJECTS = {"chat": "chat.completion", "completions": "text_completion"}
_FIRST = ("id", "created", "model")
_NAMES = frozenset({"role", "id", "type", "format", "name"})
"""Texts that are told once, or again and again the same; every other one grows."""
_object = msgspec.json.Decoder(dict[str, Any])


class _Grown(list[str]):
    """A text, in its pieces."""


class Joined:
    """Blocks of whole events in, one JSON answer out."""

    def __init__(self, endpoint: str) -> None:
        self._chat = endpoint == CHAT
        self._top: dict[str, Any] = {"object": _OBJECTS[endpoint]}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, block: bytes) -> None:
        """Raises `ValueError` (of which msgspec's are) for what is no part of an answer."""
        for raw in sse.split(block):
            data = sse.parse(raw).data
            if data is not None and data.strip() != chunk.DONE:
                self._take(_object.decode(data))

    def body(self, usage: dict[str, Any] | None) -> bytes | None:
        """`usage`: as the engine counted. None where a choice has no end."""
        choices = [self._choices[i] for i in sorted(self._choices)]
        if not choices or not all(isinstance(c.get("finish_reason"), str) for c in choices):
            return None
        found = {**self._top, "choices": [_ended(c) for c in choices]}
        if usage is not None:
            found["usage"] = usage
        return msgspec.json.encode(found)

    def _take(self, said: dict[str, Any]) -> None:
        for name, value in said.items():
            if name in ("choices", "usage", "object") or value is None:
                continue
            if name not in _FIRST or name not in self._top:
                self._top[name] = value
        for part in said.get("choices") or ():
            self._choice(part)

    def _choice(self, part: dict[str, Any]) -> None:
        index = part.get("index") or 0
        choice = self._choices.get(index)
        if choice is None:
            start = {"message": {"role": "assistant", "content": None}} if self._chat else {"text": _Grown()}
            choice = self._choices[index] = {"index": index, **start, "finish_reason": None}
        for name, value in part.items():
            if value is None or name == "index":
                continue
            if name == "delta":
                _grow(choice["message"], value)
            elif name == "text":
                choice["text"].append(value)
            elif isinstance(value, dict):
                _grow(choice.setdefault(name, {}), value)
            else:
                choice[name] = value


def _grow(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """`part` laid on: texts and lists behind what is there, anything else instead of it."""
    for name, value in part.items():
        before = whole.get(name)
        if value is None:
            whole.setdefault(name, None)
        elif name == "tool_calls":
            _grow_calls(whole, value)
        elif isinstance(value, str):
            if name in _NAMES:
                whole[name] = value if not before or before == value else before + value if name == "name" else value
            elif isinstance(before, _Grown):
                before.append(value)
            else:
                whole[name] = _Grown([value])
        elif isinstance(value, dict):
            _grow(whole[name] if isinstance(before, dict) else whole.setdefault(name, {}), value)
        elif isinstance(value, list) and isinstance(before, list):
            before.extend(value)
        else:
            whole[name] = value


def _grow_calls(message: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    calls: dict[int, dict[str, Any]] = message.setdefault("tool_calls", {})
    for at, part in enumerate(parts):
        index = part.get("index", at)
        _grow(calls.setdefault(index, {}), {k: v for k, v in part.items() if k != "index"})


def _ended(value: Any) -> Any:
    if isinstance(value, _Grown):
        return "".join(value)
    if isinstance(value, dict):
        found = {name: _ended(inner) for name, inner in value.items()}
        calls = found.get("tool_calls")
        if isinstance(calls, dict):
            found["tool_calls"] = [calls[i] for i in sorted(calls)]
        return found
    return value
