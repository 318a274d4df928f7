"""Events out of reads cut anywhere: what goes in comes out, whole and unchanged."""

from __future__ import annotations

import random

import pytest

from gateway.core import sse

PIECES = [
    b"data: a\n\n",
    b"data: b\r\n\r\n",
    b": comment\n\n",
    b"event: x\ndata: 1\ndata:2\n\n",
    "data: ü🌍\n\n".encode(),
    b"data: " + b"x" * 3000 + b"\n\n",
    b"id: 7\rdata: c\r\r",
    b"\n",
]


@pytest.mark.parametrize("seed", range(30))
def test_any_cut(seed: int) -> None:
    rng = random.Random(seed)
    text = b"".join(rng.choices(PIECES, k=12)) + b"data: rest"
    reader, out, at = sse.Reader(), [], 0
    while at < len(text):
        step = rng.choice((1, 2, 3, 7, 100, 2000))
        out.append(reader.feed(text[at : at + step]))
        at += step
    assert b"".join(out) + reader.rest == text
    assert reader.rest.endswith(b"data: rest")
    for block in filter(None, out):
        events = sse.split(block)
        assert b"".join(events) == block
        assert sse.end_of_first(block, 0) == len(events[0])


def test_what_an_event_says() -> None:
    assert sse.parse(b"data: a\n\n") == sse.Event(b"a")
    assert sse.parse(b":ping\r\nevent: error\r\ndata:a\r\ndata:  b\r\n\r\n") == sse.Event(b"a\n b", b"error")
    assert sse.parse(b": only a comment\n\n").data is None
    assert sse.parse(b"\xef\xbb\xbfdata: a\n\n").data == b"a"
    assert sse.parse(b"data\n\n").data == b""


def test_a_ceiling() -> None:
    reader = sse.Reader(limit=100)
    assert reader.feed(b"data: " + b"x" * 200 + b"\n\n")
    reader.feed(b"data: " + b"x" * 60)
    with pytest.raises(sse.TooLong):
        reader.feed(b"x" * 60)
