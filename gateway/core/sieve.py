"""What of a stream reaches the client: blocks of whole events in, the same bytes out but for what must change. Pure.

Bytes are searched for the few marks that make an event worth a second look; only such an event is taken apart.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.core import chunk, sse, usage
from gateway.core.mould import Mould
from gateway.core.retry import Failure, Kind

DONE = b"data: [DONE]\n\n"
_LAST = b"}\n\n" + DONE
_ENDED = re.compile(rb'finish_reason": ?"')
_ANY_USAGE = re.compile(usage.MARK)
_COUNTS = re.compile(usage.MARK + rb"(?!: ?null)")
_NULLS = ((b'],"usage":null', b"]"), (b'], "usage": null', b"]"))
"""As OpenAI and others write it into every chunk, behind the choices: cut without taking the chunk apart."""
_FEW = 4
"""Events: where one of so many is marked, all are looked at, which is cheaper than to part it from the others."""
_ROLE = b'"role":"assistant",'
"""Which most engines write into the first chunk only."""


class Broken(Exception):
    """The stream must not go on. `before`: what came ahead of the fault and may be passed on."""

    def __init__(self, failure: Failure, before: bytes = b"") -> None:
        super().__init__(failure.sentence)
        self.failure = failure
        self.before = before


def reported(error: chunk.EngineError) -> Failure:
    return Failure(Kind.REPORTED, f"the engine reported an error: {error.sentence}", error.code)


def gave_up(ending: chunk.BadEnding) -> Failure:
    return Failure(Kind.REPORTED, f"the engine gave up on the answer (finish_reason {ending})", str(ending))


GARBAGE = Failure(Kind.BAD_ANSWER, "the engine sent what is no part of an answer")


class Sieve:
    """Of one stream. `wants_usage`: the client asked for the counts itself, `each_usage`: in every chunk. `choices`:
    how many answers must end."""

    __slots__ = (
        "_choices",
        "_each_usage",
        "_ended",
        "_marks",
        "_wants_usage",
        "counts",
        "done",
        "events",
        "finished",
        "mould",
        "owed",
        "twins",
        "usage",
    )

    def __init__(self, wants_usage: bool, each_usage: bool, choices: int) -> None:
        self._wants_usage, self._each_usage, self._choices = wants_usage, each_usage, choices
        self._marks = (_ENDED, _COUNTS if wants_usage else _ANY_USAGE)
        self._ended: set[int] = set()
        self.mould = Mould()
        """Of the last event that was looked at: what it casts need not come here."""
        self.finished = False
        """Every choice has its `finish_reason`."""
        self.owed = b""
        """The counts that a client asked for, held back until the end."""
        self.done = False
        """`[DONE]` has come: nothing may follow."""
        self.twins = False
        """The engine tells the thinking text under two names."""
        self.usage: usage.Usage | None = None
        self.counts: dict[str, Any] | None = None
        """What `usage` was read from."""
        self.events = 0
        """Of the last block."""

    def sift(self, block: bytes) -> bytes:
        """`block` without what must not reach the client; raises `Broken` at an error."""
        came = block
        if not self._wants_usage and usage.MARK in block:
            block = _without_nulls(block)
        odd, self.events = _odd(block)
        if odd == 0 or self.twins:  # so is `[DONE]`
            block = self._each(sse.split(block))
            self.events = block.count(b"\n\n")
            return block
        if self.events > _FEW:
            return self._marked(block, odd)
        if self._mark(block, 0, odd) < 0:
            if self.events == 1:
                self.mould.take(came, block)
            return block
        block = self._each(sse.split(block))
        self.events = block.count(b"\n\n")
        return block

    def first(self, event: bytes, seen: chunk.Look) -> bytes | None:
        """`sift` of one event that was looked at already, with the stream's first content; None where it is of no use
        that it was."""
        if seen.ended or seen.usage is not None or seen.error is not None or self.twins or _odd(event) != (-1, 1):
            return None
        left = event
        if not self._wants_usage and usage.MARK in event:
            left = _without_nulls(event)
            if usage.MARK in left:
                return None
        self.events = 1
        self.mould.take(event.replace(_ROLE, b"", 1), left.replace(_ROLE, b"", 1))
        return left

    def _marked(self, block: bytes, odd: int) -> bytes:
        kept: list[bytes] = []
        at = 0
        while (mark := self._mark(block, at, odd)) >= 0:
            before = block.rfind(b"\n\n", at, mark)
            start = at if before < 0 else before + 2
            end = block.index(b"\n\n", mark) + 2
            kept.append(block[at:start])
            left = self._each([block[start:end]], kept)
            self.events += left.count(b"\n\n") - 1
            kept.append(left)
            at = end
        if not kept:
            return block
        kept.append(block[at:])
        return b"".join(kept)

    def _mark(self, block: bytes, at: int, odd: int) -> int:
        """Where the next event that must be looked at says so; -1 when none does."""
        first = odd if odd >= at else -1
        if (error := block.find(b'"error"', at)) >= 0 and (first < 0 or error < first):
            first = error
        for mark in self._marks:
            if (found := mark.search(block, at)) is not None and (first < 0 or found.start() < first):
                first = found.start()
        return first

    def _each(self, events: list[bytes], before: list[bytes] | None = None) -> bytes:
        """Every event taken apart. `before`: what has been kept of the block already."""
        kept: list[bytes] = []
        for raw in events:
            if self.done:
                break  # nothing may follow it
            try:
                kept.append(self._clean(raw))
            except chunk.BadEnding as e:
                raise Broken(gave_up(e), b"".join([*(before or ()), *kept])) from None
            except Broken as fault:
                fault.before = b"".join([*(before or ()), *kept])
                raise
        return b"".join(kept)

    def _clean(self, raw: bytes) -> bytes:
        if raw == DONE:
            self.done = True
            return self.owed + raw
        if _odd(raw)[0] >= 0:
            data = sse.parse(raw).data
            if data is None:
                return raw
            if data.strip() == chunk.DONE:
                self.done = True
                return self.owed + raw
            if not chunk.is_object(data):
                raise Broken(GARBAGE)
        ends = _ENDED.search(raw) is not None
        counts = usage.MARK in raw
        if ends or counts or b"error" in raw:
            if ends:
                raw = chunk.mend_endings(raw)
            event = sse.parse(raw)
            seen = chunk.look(event)
            if seen.error is not None:
                raise Broken(reported(seen.error))
            if ends:
                self._ended.update(seen.ended)
                self.finished = len(self._ended) >= self._choices
            if counts and event.data is not None and usage.MARK in event.data:
                if seen.usage is not None:
                    self.usage = usage.of(seen.usage) or self.usage
                    self.counts = seen.usage
                if not self._wants_usage:
                    if seen.usage is not None and not seen.choices:
                        return b""
                    raw = _event(event.name, usage.without(event.data))
                elif seen.usage is not None:
                    raw = self._counted(event, seen.choices) or raw
        if self.twins and b'"reasoning_content"' in raw:
            event = sse.parse(raw)
            if event.data is not None:
                raw = _event(event.name, chunk.without_twin(event.data))
        return raw

    def _counted(self, event: sse.Event, choices: int) -> bytes:
        """For who asked for counts: they come once, last and alone, also where the engine puts them beside a choice.
        Empty where `event` may stay as it is."""
        assert event.data is not None
        self.owed = b""
        if not choices or self._each_usage:
            return b""
        self.owed = _event(b"", chunk.counts_alone(event.data))
        return _event(event.name, usage.without(event.data))


def _without_nulls(block: bytes) -> bytes:
    for null, nothing in _NULLS:
        block = block.replace(null, nothing)
    return block


def _odd(block: bytes) -> tuple[int, int]:
    """Where something begins that may not be an event of one line of JSON, -1 when all of `block` looks like that, and
    how many events there are (0 where that is odd from its beginning). Comments, `[DONE]`, other line ends and garbage
    are looked at one by one. Every end of a line must be one of those between two such events, or of the last."""
    if not block.startswith(b"data: {"):
        return 0, 0
    lines = block.count(b"\n")
    usual = block.count(b"}\n\ndata: {") + 1 if lines > 2 else 1
    if block.endswith(b"}\n\n"):
        return (-1, usual) if lines == 2 * usual else (0, 0)
    if block.endswith(_LAST) and lines == 2 * usual + 2:
        return len(block) - len(DONE), usual + 1
    return 0, 0


def _event(name: bytes, data: bytes) -> bytes:
    return (b"event: %b\n" % name if name else b"") + b"data: " + data + b"\n\n"
