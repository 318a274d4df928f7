"""Requests that are kept for a while with their answers: which ones, and how they reach the store. Pure.

A file holds kept requests one after the other, as many as the edge wrote at once; what is large is compressed.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from gateway.core.snapshot import Scope

MOST_ANSWER_BYTES = 128 * 1024
"""Of an answer, from its beginning."""
MOST_REQUEST_BYTES = 4 * 1024 * 1024
"""A larger one is not kept: half a request cannot be sent again."""


class Kept(msgspec.Struct):
    """`request` as the model was sent it, `answer` as the client got it; both compressed. `replay_of`: the request that
    this one repeats."""

    id: str
    at: float
    project: str
    endpoint: str
    model: str
    stream: bool
    request: bytes
    answer: bytes
    request_bytes: int
    answer_bytes: int
    """As many as the client got: above `MOST_ANSWER_BYTES` only the beginning is here."""
    replay_of: str = ""


def wanted(scope: Scope, request_id: str) -> bool:
    """Whether the project wants this one to be kept: the same ids every time, and at a larger share those and more."""
    keep = scope.keep
    if keep is None or scope.no_store:
        return False
    return keep.sample >= 1.0 or place(request_id) < keep.sample


def place(request_id: str) -> float:
    """Where an id lies between 0 and 1; evenly, whatever ids look like."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "big") / 2**64


def packed(data: bytes) -> bytes:
    return zlib.compress(data, 3)


def unpacked(data: bytes) -> bytes:
    return zlib.decompress(data)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Kept])


def encode(batch: list[Kept]) -> bytes:
    return _encoder.encode(batch)


def decode(data: bytes) -> list[Kept]:
    """Raises `msgspec.MsgspecError`."""
    return _decoder.decode(data)
