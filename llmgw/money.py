"""Money between people, who write a decimal, and the books, which keep whole nano-units. Pure, and without floats."""

from __future__ import annotations

import re

from agent.wire.reason import Reason
from llmgw.price import NANO

MOST = 2**53 - 1
"""Nano-units (nine million units): what Redis counts exactly."""
_DECIMAL = re.compile(r"(\d{1,20})(?:\.(\d{1,30}))?", re.ASCII)
_PLACES = 9


def amount(text: str) -> int | Reason:
    """Nano-units of `250`, `250.00` or `0.000000001`; why it is not an amount."""
    found = _DECIMAL.fullmatch(text.strip())
    if found is None:
        return Reason("bad_amount", f"an amount is written like 250 or 12.50, and this is {_shown(text)}")
    whole, fraction = found[1], (found[2] or "").rstrip("0")
    if len(fraction) > _PLACES:
        return Reason("bad_amount", f"an amount has nine decimal places at most, and {_shown(text)} has more")
    nano = int(whole) * NANO + int(fraction.ljust(_PLACES, "0"))
    if nano > MOST:
        return Reason("bad_amount", f"an amount is at most {written(MOST)}, and this is {_shown(text)}")
    return nano


def written(nano: int) -> str:
    """`250.00`: two decimal places, and more where there are more."""
    sign, nano = ("-", -nano) if nano < 0 else ("", nano)
    whole, rest = divmod(nano, NANO)
    fraction = f"{rest:0{_PLACES}}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{fraction}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}…")
