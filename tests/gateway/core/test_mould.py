"""A mould: what is like the last event passes unseen, and nothing else."""

from __future__ import annotations

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


def test_nothing_is_cast_before_a_pattern() -> None:
    assert Mould().cast(event(b"a")) is None
    assert Mould().cast(b"\0\0") is None


def test_a_stream_of_odd_events_is_let_alone() -> None:
    mould = Mould()
    for i in range(20):
        mould.take(event(b"a", b"%d" % i), event(b"a", b"%d" % i))
    assert mould.cast(event(b"b", b"19")) is None
