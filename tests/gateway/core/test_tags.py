"""What a client may say a request was for, and what is refused in a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core import tags
from gateway.core.errors import BadRequest


def read(metadata: Any = None, *headers: str) -> dict[str, str]:
    body = b"" if metadata is None else json.dumps(metadata).encode()
    return tags.read(body, [header.encode() for header in headers])


@pytest.mark.parametrize(
    ("metadata", "headers", "expected"),
    [
        ({"feature": "search"}, (), {"feature": "search"}),
        (None, ("feature=search, env=prod",), {"feature": "search", "env": "prod"}),
        ({"feature": "search", "a": "1"}, ("feature=chat",), {"feature": "chat", "a": "1"}),
        (None, (" a = b=c ,",), {"a": "b=c"}),
        (None, ("a=1", "b=2"), {"a": "1", "b": "2"}),
        (None, ("a=",), {"a": ""}),
        ({"Şehir".encode().hex(): "İstanbul"}, (), {"c59e65686972": "İstanbul"}),
        ({}, (), {}),
        ({f"k{n}": "v" for n in range(16)}, (), {f"k{n}": "v" for n in range(16)}),
        ({"k": "x" * 512}, (), {"k": "x" * 512}),
    ],
)
def test_tags(metadata: Any, headers: tuple[str, ...], expected: dict[str, str]) -> None:
    assert read(metadata, *headers) == expected


@pytest.mark.parametrize(
    ("metadata", "headers", "said"),
    [
        ("text", (), "metadata must be an object whose values are text"),
        ([1], (), "metadata must be an object whose values are text"),
        ({"a": 1}, (), "metadata must be an object whose values are text"),
        ({"a": None}, (), "metadata must be an object whose values are text"),
        ({f"k{n}": "v" for n in range(17)}, (), "metadata holds 16 keys at most, and has 17"),
        ({"a b": "v"}, (), "1 to 64 letters, digits, '_', '.' or '-', and metadata has 'a b'"),
        ({"": "v"}, (), "and metadata has ''"),
        ({"k" * 65: "v"}, (), "1 to 64 letters"),
        ({"şehir": "v"}, (), "1 to 64 letters"),
        ({"k": "ş" * 257}, (), "at most 512 bytes, and 'k' in metadata has 514"),
        ({"k": "a\0b"}, (), "has a NUL in it"),
        (None, ("feature",), "is written like feature=search, env=prod, and has 'feature'"),
        (None, ("a=1, a=2",), "gives 'a' twice"),
        (None, ("a=1", "a=2"), "gives 'a' twice"),
        (None, (",".join(f"k{n}=v" for n in range(17)),), "x-llmgw-tags holds 16 tags at most, and has 17"),
        ({f"k{n}": "v" for n in range(16)}, ("other=v",), "a request has 16 tags at most, and this one has 17"),
    ],
)
def test_what_is_no_tag_is_refused(metadata: Any, headers: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(metadata, *headers)
    assert said in refused.value.sentence
    assert refused.value.name == "invalid_tags"


def test_a_header_that_is_no_text() -> None:
    with pytest.raises(BadRequest, match="UTF-8"):
        tags.read(b"", [b"a=\xff"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (b"", ""),
        (b'"ada"', "ada"),
        (b"ada", "ada"),
        (b"17", "17"),
        (b'"', '"'),
        (b"\xff", "\ufffd"),
        (b"abcdefgh", "abcde"),
    ],
)
def test_names_that_a_client_gave(value: bytes | None, expected: str) -> None:
    assert tags.text(value, 5) == expected
