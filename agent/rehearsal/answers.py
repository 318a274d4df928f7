"""What a pretended engine says: words that follow from the question alone, counted as an engine counts. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_WORDS = [
    "the",
    "model",
    "card",
    "rack",
    "node",
    "token",
    "engine",
    "answer",
    "wire",
    "key",
    "load",
    "queue",
    "batch",
    "slow",
    "fast",
    "warm",
    "cold",
    "north",
    "south",
    "first",
    "last",
    "small",
    "large",
    "one",
    "two",
    "three",
    "four",
    "open",
    "closed",
    "left",
    "right",
    "here",
    "there",
    "now",
    "then",
    "light",
    "stone",
    "river",
]
_TOKEN_CHARS = 4
"""Characters of a token, about, in English."""
_USUAL = 64
"""Tokens of an answer that nobody bounded, about."""


class Refused(Exception):
    """The request is none: what the engine answers with, and its sentence."""

    def __init__(self, status: int, sentence: str, code: str = "invalid_request_error") -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.code = status, sentence, code

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.sentence, "type": self.code, "code": self.status, "param": None}}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that can be answered. `words` are the answer, one a token."""

    model: str
    chat: bool
    stream: bool
    usage: bool
    prompt_tokens: int
    words: tuple[str, ...]
    finish: str
    tool: str = ""
    """The function that is called instead of words."""
    choices: int = 1


def read(path: str, body: bytes, model: str, context_length: int | None) -> Asked:
    """Raises `Refused`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, "the body must be a JSON object")
    if found.get("model") not in (model, None):
        raise Refused(404, f"The model `{str(found.get('model'))[:80]}` does not exist.", "NotFoundError")
    chat = path.endswith("/chat/completions")
    text = _text(found, chat)
    prompt = max(1, len(text) // _TOKEN_CHARS)
    most = found.get("max_completion_tokens", found.get("max_tokens"))
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise Refused(400, f"max_tokens must be at least 1, got {str(most)[:40]}")
    if context_length is not None and prompt + (most or 1) > context_length:
        raise Refused(
            400,
            f"This model's maximum context length is {context_length} tokens. However, you requested {prompt} prompt "
            f"tokens and {most or 1} of an answer.",
        )
    choices = found.get("n", 1)
    if not isinstance(choices, int) or not 1 <= choices <= 8:
        raise Refused(400, "n must be between 1 and 8")
    tool = _tool(found)
    wanted = _length(text)
    length = wanted if most is None else min(wanted, most)
    words = tuple(_words(text, length))
    if tool or (isinstance(found.get("response_format"), dict) and found["response_format"].get("type") != "text"):
        words, wanted, length = ("{", "}"), 2, 2
    if most is not None and most >= length and _asked_to_fill(found):
        words, wanted, length = tuple(_words(text, most)), most + 1, most
    options = found.get("stream_options")
    return Asked(
        model=model,
        chat=chat,
        stream=found.get("stream") is True,
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        prompt_tokens=prompt,
        words=words,
        finish="tool_calls" if tool else "stop" if length >= wanted else "length",
        tool=tool,
        choices=choices,
    )


def whole(asked: Asked, id_: str, at: int) -> dict[str, Any]:
    text = "".join(asked.words)
    choices: list[dict[str, Any]] = []
    for index in range(asked.choices):
        if not asked.chat:
            choices.append({"index": index, "text": text, "finish_reason": asked.finish, "logprobs": None})
            continue
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if asked.tool:
            message = {"role": "assistant", "content": None, "tool_calls": [_call(asked.tool, "{}")]}
        choices.append({"index": index, "message": message, "finish_reason": asked.finish, "logprobs": None})
    return {**_head(asked, id_, at, ""), "choices": choices, "usage": usage(asked)}


def opening(asked: Asked, id_: str, at: int) -> Iterator[bytes]:
    """The events before the first word of a stream."""
    if not asked.chat:
        return
    for index in range(asked.choices):
        yield _event(asked, id_, at, [{"index": index, "delta": {"role": "assistant", "content": ""}}])


def piece(asked: Asked, id_: str, at: int, number: int) -> Iterator[bytes]:
    """The events of one token, of every choice."""
    word = asked.words[number]
    for index in range(asked.choices):
        if not asked.chat:
            yield _event(asked, id_, at, [{"index": index, "text": word}])
        elif asked.tool:
            call = _call(asked.tool, word) if number == 0 else {"index": 0, "function": {"arguments": word}}
            yield _event(asked, id_, at, [{"index": index, "delta": {"tool_calls": [{"index": 0, **call}]}}])
        else:
            yield _event(asked, id_, at, [{"index": index, "delta": {"content": word}}])


def closing(asked: Asked, id_: str, at: int) -> Iterator[bytes]:
    for index in range(asked.choices):
        ends: dict[str, Any] = {"index": index, "finish_reason": asked.finish}
        yield _event(asked, id_, at, [{**ends, "delta": {}} if asked.chat else {**ends, "text": ""}])
    if asked.usage:
        yield b"data: " + json.dumps({**_head(asked, id_, at, "chunk"), "choices": [], "usage": usage(asked)}).encode()
    yield b"data: [DONE]"


def usage(asked: Asked) -> dict[str, int]:
    written = len(asked.words) * asked.choices
    return {
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": written,
        "total_tokens": asked.prompt_tokens + written,
    }


def embeddings(body: bytes, model: str) -> dict[str, Any]:
    """Raises `Refused`."""
    try:
        given = json.loads(body).get("input")
    except (ValueError, AttributeError, RecursionError):
        raise Refused(400, "the body is no JSON object") from None
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise Refused(400, "input must be a text, or a list of them")
    data = []
    for index, text in enumerate(texts):
        digest = hashlib.sha256(str(text).encode()).digest()
        data.append({"object": "embedding", "index": index, "embedding": [b / 255 - 0.5 for b in digest]})
    tokens = sum(max(1, len(str(t)) // _TOKEN_CHARS) for t in texts)
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _text(found: dict[str, Any], chat: bool) -> str:
    if not chat:
        prompt = found.get("prompt")
        if not isinstance(prompt, str | list) or not prompt:
            raise Refused(400, "prompt is missing")
        return prompt if isinstance(prompt, str) else "".join(map(str, prompt))
    messages = found.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise Refused(400, "messages must be a list of at least one message")
    if any(not isinstance(m.get("role"), str) for m in messages):
        raise Refused(400, "every message must have a role")
    return json.dumps([m.get("content") for m in messages], ensure_ascii=False)


def _tool(found: dict[str, Any]) -> str:
    """The function that has to be called; empty where none has to."""
    tools, choice = found.get("tools"), found.get("tool_choice")
    names = [
        str(t["function"]["name"])
        for t in (tools if isinstance(tools, list) else ())
        if isinstance(t, dict) and isinstance(t.get("function"), dict) and t["function"].get("name")
    ]
    if isinstance(choice, dict):
        named = (choice.get("function") or {}).get("name")
        return str(named) if named in names else ""
    return names[0] if names and choice == "required" else ""


def _asked_to_fill(found: dict[str, Any]) -> bool:
    """`ignore_eos` and `min_tokens`, by which load generators fix an answer's length."""
    return found.get("ignore_eos") is True or bool(found.get("min_tokens"))


def _length(text: str) -> int:
    return _USUAL // 2 + hashlib.sha256(text.encode()).digest()[0] % _USUAL


def _words(text: str, count: int) -> Iterator[str]:
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[1:5], "big")
    for n in range(count):
        place = (place * 1103515245 + 12345) % 2**31
        yield ("" if n == 0 else " ") + _WORDS[place % len(_WORDS)]


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "call_pretended", "type": "function", "function": {"name": name, "arguments": arguments}}


def _head(asked: Asked, id_: str, at: int, kind: str) -> dict[str, Any]:
    whole_name = "chat.completion" if asked.chat else "text_completion"
    return {
        "id": id_,
        "object": f"{whole_name}.chunk" if kind and asked.chat else whole_name,
        "created": at,
        "model": asked.model,
    }


def _event(asked: Asked, id_: str, at: int, choices: list[dict[str, Any]]) -> bytes:
    whole_choices = [{"logprobs": None, "finish_reason": None, **c} for c in choices]
    return b"data: " + json.dumps({**_head(asked, id_, at, "chunk"), "choices": whole_choices}).encode()
