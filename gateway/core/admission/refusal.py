"""What somebody is told who is not let in. Pure."""

from __future__ import annotations

from math import ceil

from gateway.core.errors import BadRequest, Unavailable

MAX_WAIT_HEADER = b"x-llmgw-max-wait"
FULL, TOO_LONG, PUT_OUT, TIMED_OUT = "queue_full", "wait_too_long", "put_out", "waited_too_long"
NOT_LOADED = "not_loaded"
"""Reasons, as they are counted."""
_CODES = {FULL: "queue_full", TOO_LONG: "wait_too_long", PUT_OUT: "queue_full", TIMED_OUT: "wait_too_long"}


class NotLetIn(Unavailable):
    """`position`: the place it would have had, from 1. `eta_s`: how long one there would wait."""

    def __init__(self, reason: str, model: str, position: int, eta_s: float, retry_s: float) -> None:
        eta = max(1, ceil(eta_s))
        super().__init__(_SENTENCES[reason].format(model=model, position=position, eta=eta), code=_CODES[reason])
        self.reason, self.position, self.eta_s = reason, position, eta
        self.retry_after_s = max(1, ceil(retry_s))

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*super().headers(), *place(self.position, self.eta_s)]


_SENTENCES = {
    FULL: "the queue of the model '{model}' is full: place {position} would wait about {eta} s",
    TOO_LONG: "a place in the queue of the model '{model}' would wait about {eta} s (place {position}), "
    "which is longer than this request may wait",
    PUT_OUT: "the queue of the model '{model}' is full, and others had fewer requests in it: "
    "place {position} would have waited about {eta} s more",
    TIMED_OUT: "this request has waited in the queue of the model '{model}' for as long as it may: "
    "at place {position} it would wait about {eta} s more",
}


def place(position: int, eta_s: float) -> list[tuple[bytes, bytes]]:
    """The headers for somebody who waits at `position`, from 1."""
    return [
        (b"x-llmgw-queue-position", b"%d" % position),
        (b"x-llmgw-eta-seconds", b"%d" % max(1, ceil(eta_s))),
    ]


def max_wait_s(asked: bytes, most_s: float) -> float:
    """The shorter of the setting and the client's own word (seconds); raises `BadRequest`."""
    try:
        found = float(asked)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise BadRequest("the header x-llmgw-max-wait must be a number of seconds", code="invalid_header")
    return min(found, most_s)
