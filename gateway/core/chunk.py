"""What one chunk of a streamed answer says: content, nothing yet, its end, an error. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.core import shapes, sse, usage
from gateway.core.errors import scrub
from gateway.core.value import Value

DONE = b"[DONE]"
GOOD_ENDINGS = frozenset({b"stop", b"length", b"tool_calls", b"content_filter", b"function_call"})
FAILED_ENDINGS = frozenset({b"error", b"abort"})
FINISH = re.compile(rb'"finish_reason"\s*:\s*"([^"]*)"')
_EMPTY = frozenset({b"null", b'""', b"[]", b"{}"})


@dataclass(frozen=True, slots=True)
class EngineError:
    """An error that came in-band, its words without addresses."""

    sentence: str
    code: str


class Look(Value, frozen=True):
    """`content`: something a person would see, or an ending. `usage`: the raw value of that key."""

    content: bool = False
    garbage: bool = False
    """Its data is no JSON object."""
    ended: tuple[int, ...] = ()
    """Indices of the choices that end here."""
    choices: int = 0
    usage: Any = None
    error: EngineError | None = None
    done: bool = False
    both_reasonings: bool = False


_GOOD = frozenset(ending.decode() for ending in GOOD_ENDINGS) | {None}


def is_object(data: bytes) -> bool:
    """Whether `data` is a whole JSON object."""
    if not data.lstrip().startswith(b"{"):
        return False
    try:
        shapes.anything.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def usual_answer(body: bytes) -> usage.Usage | None:
    """The counts of a whole answer as nearly all are: no error, good endings, both counts. None: look closer."""
    try:
        found = shapes.answer.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if found.error is not None or found.usage is None or found.usage.completion_tokens is None:
        return None
    for choice in found.choices or ():
        if choice.finish_reason not in _GOOD:
            return None
    return usage.usual(found.usage)


def look(event: sse.Event) -> Look:
    """What `event` says; an object of a shape that is not known counts as content, since the client must see it."""
    data = event.data
    if data is None:
        return _NOTHING
    if data.strip() == DONE:
        return _DONE
    try:
        chunk = shapes.chunk.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        if event.name == b"error":
            return Look(error=EngineError(_plain(data), "engine_error"))
        return Look(content=True) if is_object(data) else Look(garbage=True)
    if not chunk.choices and (chunk.error or event.name == b"error"):
        return Look(error=error_of(chunk.error, data))
    choices = chunk.choices or []
    content, both = False, False
    ended: tuple[int, ...] = ()
    for choice in choices:
        if choice.finish_reason is not None:
            ended += (choice.index or 0,)
            content = True
        elif choice.text:
            content = True
        delta = choice.delta
        if delta:
            for name, value in delta.items():
                if content:
                    break
                content = name != "role" and bytes(value) not in _EMPTY
            both = both or ("reasoning" in delta and "reasoning_content" in delta)
    return Look(content, ended=ended, choices=len(choices), usage=chunk.usage, both_reasonings=both)


_NOTHING, _DONE = Look(), Look(done=True)


def error_of(error: Any, data: bytes = b"") -> EngineError:
    """From the value of an `error` field, or from a whole event that is one."""
    if isinstance(error, dict):
        code = error.get("code") or error.get("type") or "engine_error"
        return EngineError(scrub(str(error.get("message") or "the engine gave no reason")), str(code)[:60])
    if isinstance(error, str):
        return EngineError(scrub(error), "engine_error")
    return EngineError(_plain(data), "engine_error")


def tail_error(rest: bytes) -> EngineError | None:
    """In what a stream left behind when it ended in the middle of an event: some engines put a bare error there."""
    text = rest.strip()
    if text.startswith(b"data:"):
        text = sse.parse(text).data or b""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if isinstance(found, dict) and found.get("error") and not found.get("choices"):
        return error_of(found["error"])
    return None


def mend_endings(data: bytes) -> bytes:
    """Endings outside OpenAI's set become `stop`; raises `BadEnding` for one that means failure."""
    if GOOD_ENDINGS.issuperset(FINISH.findall(data)):
        return data
    return FINISH.sub(_mended, data)


class BadEnding(ValueError):
    """The engine ended with `error` or `abort`: a failure, not an answer."""


def _mended(found: re.Match[bytes]) -> bytes:
    ending = found[1]
    if ending in GOOD_ENDINGS:
        return found[0]
    if ending in FAILED_ENDINGS:
        raise BadEnding(ending.decode())
    whole, start = found[0], found.start(1) - found.start()
    return whole[:start] + b"stop" + whole[start + len(ending) :]


def without_twin(data: bytes) -> bytes:
    """A chunk whose deltas name the thinking text twice, with `reasoning` only."""
    fields = msgspec.json.decode(data)
    for choice in fields.get("choices") or []:
        delta = choice.get("delta") or {}
        if delta.get("reasoning") == delta.get("reasoning_content"):
            delta.pop("reasoning_content", None)
    return msgspec.json.encode(fields)


def counts_alone(data: bytes) -> bytes:
    """The counts of a chunk that also has choices, as a chunk of their own."""
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    fields["choices"] = msgspec.Raw(b"[]")
    return msgspec.json.encode(fields)


def _plain(data: bytes) -> str:
    return scrub(data.decode(errors="replace"))
