"""Request ids: `req_` and 26 characters that sort by time (48 bits of milliseconds, 80 random bits). Pure."""

from __future__ import annotations

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]


def request_id(now_ms: int, random80: int) -> str:
    """`random80` has 80 random bits."""
    high, low, two = random80 >> 40, random80 & 0xFFFFFFFFFF, _PAIRS
    return (
        f"req_{two[now_ms >> 40 & 255]}{two[now_ms >> 30 & 1023]}{two[now_ms >> 20 & 1023]}{two[now_ms >> 10 & 1023]}"
        f"{two[now_ms & 1023]}{two[high >> 30]}{two[high >> 20 & 1023]}{two[high >> 10 & 1023]}{two[high & 1023]}"
        f"{two[low >> 30]}{two[low >> 20 & 1023]}{two[low >> 10 & 1023]}{two[low & 1023]}"
    )


def began_s(request_id: str) -> float | None:
    """When the request of this id began, in Unix seconds; None for an id that is none of ours."""
    digits = request_id.removeprefix("req_")
    if len(digits) != 26 or not request_id.startswith("req_") or not all(d in _ALPHABET for d in digits):
        return None
    value = 0
    for digit in digits[:10]:  # the first 50 of 130 bits, of which the uppermost two are nothing
        value = value << 5 | _ALPHABET.index(digit)
    return value / 1000 if value < 1 << 48 else None
