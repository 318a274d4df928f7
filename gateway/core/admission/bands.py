"""The three bands of requests, best first, and what a client may say about its own. Pure."""

from __future__ import annotations

from gateway.core.errors import BadRequest

BANDS = ("interactive", "normal", "batch")
HEADER = b"x-llmgw-band"
RANKS = {band: rank for rank, band in enumerate(BANDS)}
"""0 goes first."""
NORMAL = RANKS["normal"]


def rank(own: str, asked: bytes | None) -> int:
    """Of a request whose key is in the band `own`; `asked`, the header's value, can only lower it. A band that this
    version does not know is `normal`. Raises `BadRequest`."""
    granted = RANKS.get(own, NORMAL)
    if asked is None:
        return granted
    wanted = RANKS.get(asked.strip().lower().decode("latin-1"))
    if wanted is None:
        raise BadRequest(f"the header x-llmgw-band is one of {', '.join(BANDS)}", code="invalid_header")
    return max(granted, wanted)
