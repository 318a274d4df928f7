"""An inference request, as little of it as the gateway must know; the rest goes to the engine as it came. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core import pictures, prompts, roles, shapes
from gateway.core.errors import BadRequest
from gateway.core.value import Value

CHAT, COMPLETIONS, EMBEDDINGS = "chat", "completions", "embeddings"
PATHS = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETIONS, "/v1/embeddings": EMBEDDINGS}
_NOTHING = (b"", b"null")
_USAGE = b',"stream_options":{"include_usage":true}}'
_IMAGES = ("image_url", "image", "input_image")
_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
_PARTS = frozenset({"text", "refusal", "input_audio", "audio_url", "video_url", "file", "thinking", *_IMAGES})


class Request(Value, frozen=True):
    endpoint: str
    asked: str
    """The model's name as the client gave it."""
    stream: bool
    wants_usage: bool
    """The client itself asked for the usage chunk."""
    options_given: bool
    """`stream_options` is in the body."""
    max_tokens: int | None
    """The most that it names, under whatever name; None where it names none, or a negative one."""
    images: bool
    choices: int = 1
    """How many answers are asked for: each must end."""
    each_usage: bool = False
    """It asked for counts in every chunk (`continuous_usage_stats`)."""
    developer: bool = False
    """Some of its messages have the role `developer`."""
    user: bytes = b""
    """The value of `user` as it came, for routing."""
    metadata: bytes = b""
    """The value of `metadata` as it came: tags, which are not the engine's."""
    no_tools: bool = False
    """`tool_choice` is "none": engines that show the tools all the same get their call back as text."""
    bounded: bool = False
    """It has one of those names in it."""
    prompt_tokens: int = 0
    """An estimate, rather too high than too low (`prompts`)."""


_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    CHAT: shapes.chat,
    COMPLETIONS: shapes.completions,
    EMBEDDINGS: shapes.embeddings,
}


def read(endpoint: str, body: bytes) -> Request:
    """The request in `body`; raises `BadRequest` with one sentence that names the field."""
    if len(body) > pictures.STEP and (bare := pictures.left_out(body)) is not body:
        try:
            return _read(endpoint, bare)
        except BadRequest:  # which says where: so all of it is read
            pass
    return _read(endpoint, body)


def _read(endpoint: str, body: bytes) -> Request:
    usual = _read_usual(body) if endpoint == CHAT else None
    try:
        found: Any = _DECODERS[endpoint].decode(body) if usual is None else usual
    except msgspec.ValidationError as e:
        raise _misfit(e) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        what = (
            "is empty"
            if not body.strip()
            else f"is not JSON ({e})"
            if isinstance(e, msgspec.MsgspecError)
            else "is not JSON"
        )
        raise BadRequest(f"the request's body {what}", code="invalid_json") from None
    if not found.model:
        raise BadRequest("the request must name a model", code="missing_parameter", param="model")
    images = developer = no_tools = False
    if endpoint == CHAT:
        if usual is None:
            images = _check_messages(found.messages)
        no_tools = found.tool_choice is not shapes.ABSENT and bytes(found.tool_choice) == b'"none"'
        tokens = 0 if found.tools is shapes.ABSENT else len(memoryview(found.tools)) // 4
        for message in found.messages:
            content = message.content
            if type(content) is str:
                tokens += prompts.MESSAGE_TOKENS + prompts.text(content)
            else:
                tokens += prompts.message(content)
                if usual is not None and content is not None:
                    images = images or _shows(content)
            if message.role == roles.DEVELOPER:
                developer = True
    elif endpoint == COMPLETIONS:
        prompt = bytes(found.prompt)
        if prompt in _NOTHING:
            raise BadRequest("the request must have a prompt", code="missing_parameter", param="prompt")
        tokens = prompts.plain(prompt)
    else:
        given_input = bytes(found.input)
        if given_input in _NOTHING:
            raise BadRequest("the request must have an input", code="missing_parameter", param="input")
        tokens = prompts.plain(given_input)
    options = found.stream_options
    given = options is not msgspec.UNSET
    wants = isinstance(options, shapes.Options) and options.include_usage is True
    each = wants and options.continuous_usage_stats is True
    most, bounded = found.max_tokens, found.max_tokens is not None
    if found.max_completion_tokens is not None or found.n_predict is not None:
        # By whichever name its engine goes: llama.cpp reads its own `n_predict` first.
        named = [n for n in (most, found.max_completion_tokens, found.n_predict) if n is not None]
        most, bounded = min(named) if min(named) < 0 else max(named), True
    if most is not None and most < 0:
        most = None  # which engines take for no bound
    stream = bool(found.stream) and endpoint != EMBEDDINGS
    choices = found.n or 1
    if endpoint == COMPLETIONS:
        choices *= _prompts(prompt)
    user = b"" if found.user is shapes.ABSENT else _given(found.user)
    metadata = b"" if found.metadata is shapes.ABSENT else _given(found.metadata)
    said = (developer, user, metadata, no_tools, bounded, tokens)
    return Request(endpoint, found.model, stream, wants, given, most, images, choices, each, *said)


def _given(value: msgspec.Raw) -> bytes:
    """A field as it came; empty where it is null."""
    raw = bytes(value)
    return b"" if raw in _NOTHING else raw


def _prompts(prompt: bytes) -> int:
    """Of a completion: one, or a list of texts or of token lists (a list of tokens is one)."""
    if not prompt.startswith(b"["):
        return 1
    found: list[msgspec.Raw] = msgspec.json.decode(prompt, type=list[msgspec.Raw])
    return max(1, len(found)) if found and bytes(found[0])[:1] in (b'"', b"[") else 1


def outgoing(
    body: bytes, request: Request, engine_name: str, developer_role: bool = False, most: int | None = None
) -> bytes:
    """What the engine gets: the body as it came, but for the model's name where an alias was used, with
    `stream_options.include_usage` on for a stream (its other keys kept), with one leading system message for
    instructions in the role `developer`, unless the model takes that (`developer_role`), without its tools where none
    may be called, without `metadata`, and with `max_tokens` where `most` bounds it."""
    usage = request.stream and not request.wants_usage
    odd = (request.developer and not developer_role) or request.no_tools or request.metadata
    if engine_name == request.asked and not odd and (most is None or not request.bounded):
        more = b"" if most is None else b',"max_tokens":%d}' % most
        if not usage:
            return _extended(body, more) if more else body
        if not request.options_given:
            return _extended(body, more[:-1] + _USAGE)
    try:
        fields: dict[str, Any] = shapes.whole.decode(body)
    except msgspec.MsgspecError as e:  # within a picture, which was not read
        raise BadRequest(f"the request's body is not JSON ({e})", code="invalid_json") from None
    if engine_name != request.asked:
        fields["model"] = engine_name
    fields.pop("metadata", None)
    if request.no_tools:
        for name in _TOOLS:
            fields.pop(name, None)
    if most is not None:
        for name in ("max_completion_tokens", "n_predict"):
            fields.pop(name, None)
        fields["max_tokens"] = most
    if request.developer and not developer_role:
        fields["messages"] = msgspec.Raw(roles.instructions_first(bytes(fields["messages"])))
    if usage:
        options = msgspec.json.decode(fields.get("stream_options") or b"null")
        fields["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return msgspec.json.encode(fields)


def _extended(body: bytes, more: bytes) -> bytes:
    """`body`, an object, with `more` in place of its closing brace; a large one is copied once."""
    return b"".join((memoryview(body.rstrip())[:-1], more))


def _read_usual(body: bytes) -> shapes.UsualChat | None:
    """None where something is odd, or wrong: a second look then says what and where."""
    try:
        found: shapes.UsualChat = shapes.usual_chat.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not found.messages:
        return None
    for message in found.messages:
        content = message.content
        if isinstance(content, str):
            continue
        if content is None:
            if message.role == "user":
                return None
        elif any(part.type not in _PARTS for part in content):
            return None
    return found


def _shows(parts: list[shapes.Part]) -> bool:
    return any(part.type in _IMAGES for part in parts)


def _check_messages(messages: list[shapes.Message] | None) -> bool:
    """True when there are pictures among the messages' parts; raises `BadRequest`."""
    if not messages:
        raise BadRequest("the request must have messages", code="missing_parameter", param="messages")
    images = False
    for i, message in enumerate(messages):
        content = message.content
        first = bytes(memoryview(content)[:1])
        if first == b"[":
            images |= _check_parts(content, i)
        elif first in (b"", b"n"):
            if message.role == "user":
                where = f"messages[{i}].content"
                raise BadRequest(f"{where} of a user message must be text or parts, and is null", param=where)
        elif first != b'"':
            where = f"messages[{i}].content"
            raise BadRequest(f"{where} must be text or a list of parts", param=where)
    return images


def _check_parts(content: Any, i: int) -> bool:
    try:
        parts = shapes.parts.decode(content)
    except msgspec.MsgspecError:
        where = f"messages[{i}].content"
        raise BadRequest(f"{where} must be a list of parts, each with a type", param=where) from None
    for j, part in enumerate(parts):
        if part.type not in _PARTS:
            where = f"messages[{i}].content[{j}].type"
            raise BadRequest(f"{where} is '{part.type[:40]}', which is no kind of content part", param=where)
    return _shows(parts)


def _misfit(e: msgspec.ValidationError) -> BadRequest:
    said, _, where = str(e).partition(" - at `$")
    path = where.rstrip("`").lstrip(".").replace("[...]", "[]")
    if not path:
        return BadRequest(f"the request's body must be a JSON object ({said})", code="invalid_json")
    wanted = said.replace("`", "").replace("Expected ", "must be ").replace(", got ", ", and is ")
    return BadRequest(f"{path} {wanted}", code="invalid_type", param=path)
