"""Request ids: `req_` and 26 characters that sort by time (48 bits of milliseconds, 80 random bits). Pure."""

from __future__ import annotations

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]


def request_id(now_ms: int, random80: int) -> str:
    """`random80` has 80 random bits."""
    global _ms, _moment
    two = _PAIRS
    if now_ms != _ms:
        _ms, _moment = (
            now_ms,
            f"req_{two[now_ms >> 40 & 255]}" + "".join(two[now_ms >> shift & 1023] for shift in (30, 20, 10, 0)),
        )
    high, low = random80 >> 40, random80 & 0xFFFFFFFFFF
    return (
        f"{_moment}{two[high >> 30]}{two[high >> 20 & 1023]}{two[high >> 10 & 1023]}{two[high & 1023]}"
        f"{two[low >> 30]}{two[low >> 20 & 1023]}{two[low >> 10 & 1023]}{two[low & 1023]}"
    )


_ms, _moment = -1, ""
"""The last millisecond, and how the ids of all its requests begin."""


def began_s(request_id: str) -> float | None:
    """When the request of this id began, in Unix seconds; None for an id that is none of ours."""
    digits = request_id.removeprefix("req_")
    if len(digits) != 26 or not request_id.startswith("req_") or not all(d in _ALPHABET for d in digits):
        return None
    value = 0
    for digit in digits[:10]:  # the first 50 of 130 bits, of which the uppermost two are nothing
        value = value << 5 | _ALPHABET.index(digit)
    return value / 1000 if value < 1 << 48 else None
