"""What an answer says, from its bytes as a client got them: the text, whole or streamed, and the counts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.core.usage import Usage
from gateway.core.usage import of as counts


@dataclass(frozen=True, slots=True)
class Answer:
    """`text` is what the model wrote, with its reasoning before it and its tool calls behind it. `problem`: the answer
    was an error, or ended with one."""

    text: str
    reasoning: str = ""
    tools: tuple[str, ...] = ()
    usage: Usage | None = None
    problem: str = ""
    finish: str = ""


def read(body: bytes) -> Answer:
    """Never raises: of what cannot be read nothing is told."""
    if body.lstrip()[:1] == b"{":
        return _gathered([_object(body)])
    return _gathered([_object(data) for data in _events(body)])


def _events(body: bytes) -> list[bytes]:
    """The data of each event; the last one may be cut off in its middle."""
    found = []
    for raw in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in raw.split(b"\n") if line.startswith(b"data:")]
        if lines:
            found.append(b"\n".join(lines))
    return found


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _gathered(documents: list[dict[str, Any]]) -> Answer:
    text: list[str] = []
    reasoning: list[str] = []
    tools: dict[Any, str] = {}
    usage: Usage | None = None
    problem = finish = ""
    for document in documents:
        if document.get("error"):
            problem = _message(document["error"])
        usage = counts(document.get("usage")) or usage
        for choice in _dicts(document.get("choices")):
            said = choice.get("delta") or choice.get("message") or {}
            said = said if isinstance(said, dict) else {}
            index = choice.get("index") or 0
            if index == 0:
                text.append(_text(said.get("content")) or _text(choice.get("text")))
                reasoning.append(_text(said.get("reasoning_content")) or _text(said.get("reasoning")))
                finish = _text(choice.get("finish_reason")) or finish
            for n, call in enumerate(_dicts(said.get("tool_calls"))):
                function = call.get("function")
                if isinstance(function, dict):
                    at = (index, call.get("index", n))
                    tools[at] = tools.get(at, "") + _text(function.get("name")) + _text(function.get("arguments"))
        if isinstance(document.get("data"), list):
            text.append(_vectors(document["data"]))
    return Answer("".join(text), "".join(reasoning), tuple(tools.values()), usage, problem, finish)


def _vectors(data: list[Any]) -> str:
    """Of embeddings: how many, and the first figures of each."""
    lines = []
    for one in _dicts(data):
        vector = one.get("embedding")
        if isinstance(vector, list):
            shown = ", ".join(f"{x:.4f}" for x in vector[:8] if isinstance(x, int | float))
            lines.append(f"{len(vector)} dimensions: {shown}, …")
    return "\n".join(lines)


def _message(error: Any) -> str:
    return _text(error.get("message")) or "an error" if isinstance(error, dict) else str(error)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [x for x in value if isinstance(x, dict)] if isinstance(value, list) else []
