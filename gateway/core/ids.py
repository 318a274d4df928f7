"""Request ids: `req_` and 26 characters that sort by time (48 bits of milliseconds, 80 random bits). Pure."""

from __future__ import annotations

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]


def request_id(now_ms: int, random80: int) -> str:
    """`random80` has 80 random bits."""
    value = (now_ms & 0xFFFFFFFFFFFF) << 80 | random80
    return "req_" + "".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS])


_SHIFTS = range(120, -1, -10)
