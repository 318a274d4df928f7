"""Making an API key, and how long it may live. Pure: randomness and the time come in."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent.wire.reason import Reason
from llmgw.keys import key_hash

PREFIX = "llmgw_"
RANDOM_BYTES = 32
SHOWN = 12
"""Characters of a key that may be shown: what its owner recognises it by."""


CLUSTER = "llmgw config set keys.max_ttl_days DAYS"


@dataclass(frozen=True, slots=True)
class Secret:
    """A new key: `text` is shown once and never kept."""

    text: str = field(repr=False)
    hash: str
    prefix: str


def secret(random: bytes) -> Secret:
    """The key made of 32 random bytes."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a key is made of {RANDOM_BYTES} random bytes, not {len(random)}")
    text = PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()
    return Secret(text=text, hash=key_hash(text), prefix=text[:SHOWN])


@dataclass(frozen=True, slots=True)
class Life:
    """How long a key lives. `expires_at` None: until it is revoked."""

    expires_at: datetime | None


def life(asked_days: int | None, max_days: int | None, now: datetime, set_by: str = CLUSTER) -> Life | Reason:
    """The life of a key asked for `asked_days` (None: the longest allowed) where keys live `max_days` at most;
    `set_by` is the command that changes that."""
    if asked_days is None:
        asked_days = max_days
    if asked_days is None:
        return Life(None)
    if asked_days < 1:
        return Reason("bad_key_life", f"a key must live a day or more, and {asked_days} was asked for")
    if max_days is not None and asked_days > max_days:
        return Reason(
            "key_lives_too_long",
            f"a key may live {max_days} days at most here, and {asked_days} were asked for",
            set_by,
        )
    try:
        return Life(now + timedelta(days=asked_days))
    except OverflowError:
        return Reason("bad_key_life", f"{asked_days} days from now is past the end of the calendar")
