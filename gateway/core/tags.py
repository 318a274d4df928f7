"""What a client says a request was for: `metadata` in the body and `x-llmgw-tags` in the head. Pure.

Both hold up to 16 tags; for a key that both give the header wins. What is not a tag is refused rather than dropped: a
tag that is lost silently is spend that nobody finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gateway.core.errors import BadRequest

MOST, MOST_VALUE_BYTES = 16, 512
HEADER = b"x-llmgw-tags"
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_METADATA, _TAGS = "metadata", "x-llmgw-tags"
_object = msgspec.json.Decoder(dict[str, str])
_text = msgspec.json.Decoder(str)


def read(metadata: bytes, headers: Iterable[bytes]) -> dict[str, str]:
    """The tags in `metadata` (JSON as it came, empty for none) and in each `x-llmgw-tags`; raises `BadRequest` with
    one sentence."""
    found = _from_metadata(metadata) if metadata else {}
    named: dict[str, str] = {}
    for header in headers:
        for key, value in _pairs(header):
            if key in named:
                raise _bad(f"{_TAGS} gives '{key}' twice", _TAGS)
            named[key] = _checked(key, value, _TAGS)
    if len(named) > MOST:
        raise _bad(f"{_TAGS} holds {MOST} tags at most, and has {len(named)}", _TAGS)
    found.update(named)
    if len(found) > MOST:
        raise _bad(f"a request has {MOST} tags at most, and this one has {len(found)}", _TAGS)
    return found


def text(value: bytes | None, most: int) -> str:
    """A name that the client gave, from a header or as JSON text: at most `most` characters of it."""
    if not value:
        return ""
    if value[:1] == b'"':
        try:
            return _text.decode(value)[:most]
        except msgspec.MsgspecError:
            pass
    return value.decode(errors="replace")[:most]


def _from_metadata(metadata: bytes) -> dict[str, str]:
    try:
        found = _object.decode(metadata)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _bad(f"{_METADATA} must be an object whose values are text", _METADATA) from None
    if len(found) > MOST:
        raise _bad(f"{_METADATA} holds {MOST} keys at most, and has {len(found)}", _METADATA)
    return {key: _checked(key, value, _METADATA) for key, value in found.items()}


def _pairs(header: bytes) -> Iterable[tuple[str, str]]:
    try:
        said = header.decode()
    except UnicodeDecodeError:
        raise _bad(f"{_TAGS} must be UTF-8", _TAGS) from None
    for part in said.split(","):
        if not part.strip():
            continue  # a comma at the end
        key, equals, value = part.partition("=")
        if not equals:
            raise _bad(f"{_TAGS} is written like feature=search, env=prod, and has '{part.strip()[:64]}'", _TAGS)
        yield key.strip(), value.strip()


def _checked(key: str, value: str, param: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise _bad(f"a tag's key is 1 to 64 letters, digits, '_', '.' or '-', and {param} has '{key[:64]}'", param)
    size = len(value.encode(errors="replace"))
    if size > MOST_VALUE_BYTES:
        raise _bad(f"a tag's value is at most {MOST_VALUE_BYTES} bytes, and '{key}' in {param} has {size}", param)
    if "\0" in value:
        raise _bad(f"a tag's value is text, and '{key}' in {param} has a NUL in it", param)
    return value


def _bad(sentence: str, param: str) -> BadRequest:
    return BadRequest(sentence, code="invalid_tags", param=param)
