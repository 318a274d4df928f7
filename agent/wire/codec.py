"""Bytes to messages and back: `{"v": 1, "t": "hello", "b": {…}}`, JSON, at most `MAX_BYTES` long.

Unknown fields are ignored and absent ones take their defaults, so that a mixed fleet keeps talking; an unknown
type is `UnknownMessage`, which a receiver may skip; anything else that does not fit is `BadMessage`.
"""

from __future__ import annotations

import msgspec

from agent.wire.messages import NAMES, PROTOCOL, TYPES, Message

MAX_BYTES = 4 * 1024 * 1024
"""Of one message, both ways: a thousand shards with their specs fit in a quarter of it."""


class BadMessage(ValueError):
    """The bytes are no message of ours; the sentence says what was found."""


class UnknownMessage(BadMessage):
    """A well-formed envelope of a type that this version does not know."""


class _Envelope(msgspec.Struct):
    v: int
    t: str
    b: msgspec.Raw = msgspec.Raw(b"{}")


_envelope = msgspec.json.Decoder(_Envelope)
_bodies = {name: msgspec.json.Decoder(cls) for name, cls in TYPES.items()}
_encoder = msgspec.json.Encoder()


def encode(message: Message) -> bytes:
    """The message's bytes; raises `BadMessage` when they would pass the cap."""
    envelope = _Envelope(v=PROTOCOL, t=NAMES[type(message)], b=msgspec.Raw(_encoder.encode(message)))
    data = _encoder.encode(envelope)
    if len(data) > MAX_BYTES:
        raise BadMessage(f"a {envelope.t} of {len(data)} bytes is over the limit of {MAX_BYTES}")
    return data


def decode(data: bytes | str) -> Message:
    """The message in `data`; raises `UnknownMessage` or `BadMessage`."""
    if len(data) > MAX_BYTES:
        raise BadMessage(f"a message of {len(data)} bytes is over the limit of {MAX_BYTES}")
    try:
        envelope = _envelope.decode(data)
    except msgspec.MsgspecError as e:
        raise BadMessage(f"not a message of ours: {e}") from None
    decoder = _bodies.get(envelope.t)
    if decoder is None:
        raise UnknownMessage(f"a message of unknown type {envelope.t[:40]!r}")
    try:
        message: Message = decoder.decode(envelope.b)
    except msgspec.MsgspecError as e:
        raise BadMessage(f"a {envelope.t} that does not fit: {e}") from None
    return message
