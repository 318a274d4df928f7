"""How long to wait before dialling again. Pure: the randomness comes in."""

from __future__ import annotations

FIRST_S = 0.2
LONGEST_S = 30.0
HOPELESS_S = 60.0
"""Between tries after a refusal that trying again cannot mend; a person may mend it at the other end."""


def delay_s(failures: int, jitter: float) -> float:
    """After `failures` (≥ 1) in a row; `jitter` in [0, 1) spreads a fleet that lost its server at once."""
    whole = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 20))
    return float(whole * (0.5 + jitter / 2))
