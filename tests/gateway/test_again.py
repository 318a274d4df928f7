"""A head that is known is told from one that only looks like it."""

from __future__ import annotations

import pytest

from gateway.edge.again import OFTEN, Again

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nx: y\r\n\r\n"


def known() -> Again[str]:
    again: Again[str] = Again()
    assert again.length(HEAD % b"4" + b"body") == -1
    again.keep(HEAD % b"4" + b"body", 4, "value")
    return again


@pytest.mark.parametrize("body", [b"", b"b", b"body", b"\r\n" * 700])
def test_any_body_behind_a_known_head(body: bytes) -> None:
    assert known().length(HEAD % (b"%d" % len(body)) + body) == len(body)


@pytest.mark.parametrize(
    "data",
    [
        HEAD % b"4" + b"bod",
        HEAD % b"4" + b"body" + b"G",
        HEAD % b"+4" + b"body",
        HEAD % b"4 " + b"body",
        HEAD % b"" + b"body",
        HEAD % b"4\r\nz: 4" + b"body",
        HEAD % b"0000000004" + b"body",
        (HEAD % b"4").replace(b"x: y", b"x: z") + b"body",
        (HEAD % b"4")[:-1],
        b"",
    ],
)
def test_what_is_not_the_same_goes_to_the_parser(data: bytes) -> None:
    assert known().length(data) == -1


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", 4),
        (HEAD % b"4" + b"body" + HEAD % b"4" + b"body", 4),
        (HEAD % b"5" + b"body", 4),
        (b"\r\n" + (HEAD % b"4").replace(b"\r\n", b"\n") + b"body", 4),
    ],
)
def test_what_is_more_or_less_than_one_message_is_not_kept(data: bytes, length: int) -> None:
    again: Again[str] = Again()
    again.keep(data, length, "value")
    assert again.value is None


def test_heads_that_always_differ_are_seldom_kept() -> None:
    again: Again[int] = Again()
    kept = set()
    for i in range(1000):
        data = b"POST / HTTP/1.1\r\nx: %d\r\ncontent-length: 0\r\n\r\n" % i
        assert again.length(data) == -1
        again.keep(data, 0, i)
        kept.add(again.value)
    assert OFTEN <= len(kept) <= OFTEN + 20
    again.known()
    again.keep(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 0, -1)
    assert again.value == -1
