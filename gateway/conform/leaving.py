"""Leaving: does an endpoint stop working for those who have gone? Seen from outside by who is served next.

Many long requests are begun and a short one after them. Only where the short one has to wait can leaving show: then all
long ones are left, and the short one must be served at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from gateway.conform.judgement import Finding, broken, held, left_open
from gateway.conform.streams import long_request
from gateway.conform.target import CHAT, Answer, Target, Unreachable, Waiting

RULES = {
    "L1": "streams that were left are worked on no more",
    "L2": "whole answers that were left are worked on no more",
}
TOGETHER = 8
"""Long requests at once: an endpoint that takes as many shows nothing."""
TOKENS = 1500
WAITS_S = 0.7
"""A short request that is served within this while the long ones run did not have to wait."""
FREED_S = 2.0


def check(target: Target, together: int = TOGETHER) -> Iterator[Finding]:
    for rule, stream in (("L1", True), ("L2", False)):
        try:
            yield _left(target, rule, stream, together)
        except Unreachable as e:
            yield left_open(rule, f"the requests could not be made ({e})")


def _left(target: Target, rule: str, stream: bool, together: int) -> Finding:
    began = time.monotonic()
    if (alone := target.ask("POST", CHAT, target.chat(max_tokens=1))).status != 200:
        return left_open(rule, f"a short request was refused with {alone.said()}")
    alone_s = time.monotonic() - began
    waiting = [target.begin(CHAT, _long(target, stream)) for _ in range(together)]
    try:
        refused = _refused(waiting) if stream else None
        if refused:
            return left_open(rule, refused)
        short = _Short(target)
        if short.over(WAITS_S + alone_s):
            return left_open(rule, f"{together} long requests made nobody wait: nothing can be seen of leaving")
    finally:
        for one in waiting:
            one.leave()
    left = time.monotonic()
    if short.over(FREED_S + alone_s) and short.good:
        return held(rule, f"served {time.monotonic() - left:.2f} s after the others left")
    short.over(60)
    return broken(rule, f"{time.monotonic() - left:.1f} s after {together} clients left, the next one was served")


def _long(target: Target, stream: bool) -> dict[str, object]:
    return long_request(target, TOKENS, **({"stream": True} if stream else {}))


def _refused(waiting: list[Waiting]) -> str | None:
    """The first one's first bytes tell whether long requests are taken at all."""
    first = waiting[0].first(5)
    line = first.split(b"\r\n", 1)[0].decode(errors="replace")
    return f"long requests are refused: {line[:80]}" if first and b" 200" not in first[:20] else None


class _Short:
    """A short request in a thread of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._answer: Answer | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._target.ask("POST", CHAT, self._target.chat(max_tokens=1))
        except Unreachable:
            self._answer = None

    def over(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()

    @property
    def good(self) -> bool:
        return self._answer is not None and self._answer.status == 200
