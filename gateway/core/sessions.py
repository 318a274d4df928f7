"""Where a session lives: consistent (rendezvous) hashing, the same at every edge without a word between them. Pure.

Each replica draws a number for the session and the highest wins; a weight makes a replica win that much more often, and
a replica that comes or goes moves only the sessions that it wins or held.
"""

from __future__ import annotations

from hashlib import blake2b
from math import log

_MASK = (1 << 64) - 1


def seed(name: str | bytes) -> int:
    """64 bits of `name`, alike in every process."""
    data = name.encode() if isinstance(name, str) else name
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def draw(session: int, replica: int, weight: float) -> float:
    """The number that the replica with seed `replica` draws for the session with seed `session`."""
    mixed = ((session ^ replica) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93) & _MASK
    mixed ^= mixed >> 32
    return weight / -log((mixed + 1) / (_MASK + 2))
