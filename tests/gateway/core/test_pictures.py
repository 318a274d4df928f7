"""Pictures left out: what is read of a request stays the same, and nothing but a picture is left out."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from gateway.core import pictures, request
from gateway.core.errors import BadRequest

BASE64 = "iVBORw0KGgo" * 30_000


def chat(*contents: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": c} for c in contents], **fields}).encode()


def picture(data: str = BASE64) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


@pytest.mark.parametrize("seed", range(6))
def test_only_their_data_is_left_out(seed: int) -> None:
    rng = random.Random(seed)
    parts: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 6)):
        parts += [
            picture(BASE64[: rng.randint(200_000, 330_000)]),
            {"type": "text", "text": "so " * rng.randint(0, 40_000)},
        ]
    rng.shuffle(parts)
    body = chat(parts[: len(parts) // 2], "words", parts[len(parts) // 2 :], stream=True)
    bare = pictures.left_out(body)
    assert len(bare) < 400_000
    kept = [p if p["type"] == "text" else picture("") for p in parts]
    wanted = chat(kept[: len(kept) // 2], "words", kept[len(kept) // 2 :], stream=True)
    assert bare == wanted
    assert request.read("chat", body).images
    assert request.read("chat", body).prompt_tokens == request.read("chat", wanted).prompt_tokens


@pytest.mark.parametrize(
    "body",
    [
        b"",
        chat("a"),
        chat("a" * 1_000_000),
        chat("data:image/png;base64,aaaa" + "a" * 200 + " " * 300_000)[:-20],
        chat(["x" * 200 + ";base64," + BASE64]),
        b'{"model":"m","input":[' + b"1," * 200_000 + b"1]}",
        b'"' * 500_000,
    ],
)
def test_all_else_stays(body: bytes) -> None:
    assert pictures.left_out(body) is body


def test_what_follows_a_hidden_end_is_seen() -> None:
    """A quote behind a backslash ends no string: who else reads the body sees no other fields than we do."""
    hidden = "data:x;base64," + "a" * 300_000 + '"}],"model":"other","x":"'
    body = chat(hidden)
    assert b'\\"model' in body
    assert request.read("chat", body).asked == "m"
    assert pictures.left_out(body) is body


def test_errors_say_where_in_the_whole() -> None:
    with pytest.raises(BadRequest, match=r"byte 3\d{5}"):
        request.read("chat", chat([picture()])[:-1] + b",}")


def test_a_picture_that_is_no_json_is_refused_where_the_body_is_rewritten() -> None:
    body = chat([picture(BASE64 + "\n")]).replace(b"\\n", b"\n")
    found = request.read("chat", body)
    assert request.outgoing(body, found, "m") is body
    with pytest.raises(BadRequest, match="is not JSON"):
        request.outgoing(body, found, "other")
