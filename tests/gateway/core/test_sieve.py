"""What a sieve lets through: the same bytes but for what must change, whatever the blocks."""

from __future__ import annotations

import random

import pytest

from gateway.core import sse
from gateway.core.sieve import DONE, Broken, Sieve

HEAD = b'data: {"id":"a","choices":[{"index":0,"delta":{"content":'


def event(content: bytes, tail: bytes = b"") -> bytes:
    return HEAD + b'"%b"},"finish_reason":null}]%b}\n\n' % (content, tail)


FINISH = b'data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]%b}\n\n'
COUNTS = b'data: {"id":"a","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
NULL = b',"usage":null'
WORDS = (b"the", b"an error", rb"a \"usage\":null b", rb"finish_reason\":\"stop", "ü🌍".encode(), b"")


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("null", [b"", NULL, b', "usage": null', b',"usage" : null', b',"usage":null,"x":"y"'])
@pytest.mark.parametrize("seed", range(8))
def test_any_blocks(wants: bool, null: bytes, seed: int) -> None:
    rng = random.Random(seed)
    words = rng.choices(WORDS, k=20)
    events = [*(event(w, null) for w in words), FINISH % null, COUNTS, DONE]
    bare = b',"x":"y"' if b'"x"' in null else b""
    wanted = events if wants else [*(event(w, bare) for w in words), FINISH % bare, DONE]
    sieve, out, at = Sieve(wants, False, 1), b"", 0
    while at < len(events):
        step = rng.choice((1, 1, 2, 5, 23))
        block = b"".join(events[at : at + step])
        cast = sieve.mould.cast(block) if rng.random() < 0.8 else None  # a stream asks the mould first
        out += cast if cast is not None else sieve.sift(block)
        at += step
    assert out == b"".join(wanted)
    assert sieve.done
    assert sieve.finished
    assert sieve.usage is not None
    assert (sieve.usage.prompt, sieve.usage.completion) == (3, 2)


def test_what_came_before_a_fault_is_told() -> None:
    fault = b'data: {"error":{"message":"boom"}}\n\n'
    with pytest.raises(Broken) as found:
        Sieve(False, False, 1).sift(event(b"a") + event(b"an error") + event(b"b") + fault + event(b"c"))
    assert found.value.before == event(b"a") + event(b"an error") + event(b"b")
    assert "boom" in found.value.failure.sentence


def test_comments_and_odd_line_ends_pass() -> None:
    block = b": ping\n\n" + event(b"a") + event(b"b").replace(b"\n", b"\r\n") + b"event: x\n" + event(b"c")
    assert Sieve(False, False, 1).sift(block) == block
    assert len(sse.split(block)) == 4
