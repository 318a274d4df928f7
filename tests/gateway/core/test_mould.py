"""A mould: what is like the last event passes unseen, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.core.mould import Mould


def event(text: bytes, name: bytes = b"a") -> bytes:
    return b'data: {"id":"%b","choices":[{"delta":{"content":"%b"},"finish_reason":null}],"usage":null}\n\n' % (
        name,
        text,
    )


def left(text: bytes) -> bytes:
    return event(text).replace(b',"usage":null', b"")


@pytest.fixture
def mould() -> Mould:
    mould = Mould()
    mould.take(event(b"first"), left(b"first"))
    return mould


@pytest.mark.parametrize("text", [b"", b"a", b"x" * 1000, rb"a\nb\u00fc", "ü🌍".encode(), b"error", b"finish_reason"])
def test_what_is_alike_is_cast(mould: Mould, text: bytes) -> None:
    assert mould.cast(event(text)) == left(text)


def framed(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


@pytest.mark.parametrize("text", [b"", b"a", b"x" * 200, b"x" * 3900, rb"a\nb\u00fc", "ü🌍".encode()])
@pytest.mark.parametrize("becomes", [left, event])
def test_so_is_a_chunk_of_it(text: bytes, becomes: Callable[[bytes], bytes]) -> None:
    mould = Mould()
    mould.take(event(b"first"), becomes(b"first"))
    assert mould.chunk(framed(event(text))) == framed(becomes(text))


@pytest.mark.parametrize("text", [b"a", b"x" * 200])
@pytest.mark.parametrize(
    ("was", "instead"),
    [
        (b"\r\ndata", b" \r\ndata"),  # a chunk's extension
        (b"\r\ndata", b"\ndata"),
        (b"\n\n\r\n", b"\n\n"),
        (b"\n\n\r\n", b"\n\n\r\n5\r\nhello\r\n"),
        (b"content", b"c0ntent"),
    ],
)
def test_another_chunk_is_not(mould: Mould, text: bytes, was: bytes, instead: bytes) -> None:
    assert mould.chunk(framed(event(text)).replace(was, instead)) is None


def test_a_chunk_that_names_another_length_is_not(mould: Mould) -> None:
    chunk = framed(event(b"abc"))
    for wrong in (b"0", b"1", b"ffff", b"00" + chunk[:2], b""):
        assert mould.chunk(wrong + chunk[2:]) is None


@pytest.mark.parametrize(
    "other",
    [
        event(b"a", b"b"),
        event(b'"'),
        event(rb"\""),
        event(b"a\\"),
        event(b"a\n\ndata: b"),
        event(b"a\r"),
        event(b"a") + event(b"b"),
        event(b"a").replace(b":null}]", b':"stop"}]'),
        event(b"")[:60] + event(b"")[61:],  # head and tail with the quote between them once
        event(b"a")[:-1],
        b"",
    ],
)
def test_what_differs_is_not(mould: Mould, other: bytes) -> None:
    assert mould.cast(other) is None
    assert mould.chunk(framed(other)) is None


def test_nothing_is_cast_before_a_pattern() -> None:
    assert Mould().cast(event(b"a")) is None
    assert Mould().cast(b"\0\0") is None
    assert Mould().chunk(framed(event(b"a"))) is None
    assert Mould().chunk(b"") is None


def test_a_stream_of_odd_events_is_let_alone() -> None:
    mould = Mould()
    for i in range(20):
        mould.take(event(b"a", b"%d" % i), event(b"a", b"%d" % i))
    assert mould.cast(event(b"b", b"19")) is None
