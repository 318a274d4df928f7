"""What an exchange has seen of its answer."""

from __future__ import annotations

from typing import Any

from gateway.core import usage


class Tally:
    """What was seen of an answer, across attempts."""

    __slots__ = ("content_sent", "counts", "events", "finished", "text_tokens", "ttft_s", "usage")

    def __init__(self) -> None:
        self.content_sent = False
        self.usage: usage.Usage | None = None
        self.counts: dict[str, Any] | None = None
        """A stream's usage as the engine gave it."""
        self.events = 0
        """Events with content, which is about a token each."""
        self.text_tokens = 0
        self.ttft_s: float | None = None
        self.finished = False

    def estimated(self) -> int:
        return self.events or self.text_tokens
