"""What is read of JSON, by its shape: requests, chunks and answers of engines. Everything else is passed over.

Apart from the code that goes by it, for that code may be compiled, and a compiled class does not keep the types of its
fields, which decoding needs.
"""

from __future__ import annotations

from typing import Any

import msgspec

ABSENT = msgspec.Raw(b"")
_Raw = msgspec.Raw


# -- requests


class Options(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Message(msgspec.Struct):
    role: str = ""
    content: _Raw = ABSENT


class Part(msgspec.Struct):
    type: str = ""
    text: _Raw = ABSENT


class Body(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None
    stream_options: Options | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n_predict: int | None = None
    n: int | None = None
    user: _Raw = ABSENT
    metadata: _Raw = ABSENT


class Chat(Body):
    messages: list[Message] | None = None
    tool_choice: _Raw = ABSENT
    tools: _Raw = ABSENT


class UsualMessage(msgspec.Struct):
    role: str = ""
    content: str | list[Part] | None = None


class UsualChat(Body):
    """A chat as nearly all are, of which one decode tells everything."""

    messages: list[UsualMessage] | None = None
    tool_choice: _Raw = ABSENT
    tools: _Raw = ABSENT


class Completions(Body):
    prompt: _Raw = ABSENT


class Embeddings(Body):
    input: _Raw = ABSENT


# -- engines' answers


class Details(msgspec.Struct):
    cached_tokens: int | None = None


class Counts(msgspec.Struct):
    """The usual shape of a `usage` field."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Choice(msgspec.Struct):
    index: int | None = None
    delta: dict[str, _Raw] | None = None
    text: str | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class Ending(msgspec.Struct):
    finish_reason: str | None = None


class Answer(msgspec.Struct):
    choices: list[Ending] | None = None
    usage: Counts | None = None
    error: Any = None


chat, usual_chat = msgspec.json.Decoder(Chat), msgspec.json.Decoder(UsualChat)
completions, embeddings = msgspec.json.Decoder(Completions), msgspec.json.Decoder(Embeddings)
parts, whole = msgspec.json.Decoder(list[Part]), msgspec.json.Decoder(dict[str, msgspec.Raw])
counts, chunk, answer = msgspec.json.Decoder(Counts), msgspec.json.Decoder(Chunk), msgspec.json.Decoder(Answer)
anything = msgspec.json.Decoder(msgspec.Raw)
