"""Who hears the fleet, from the links' leases."""

from __future__ import annotations

from fleet.core.hearing import LEASE, LEASE_S, Ears
from llmgw.cluster import leases


def ears(now: float) -> Ears:
    """As they are at `now` (Unix seconds); in one query."""
    ever = leases.tenures(LEASE)
    up = [one for one in ever if one.expires_at > now]
    return Ears(
        since=min((one.taken_at for one in up), default=None),
        told={one.name: one.expires_at - LEASE_S for one in up},
        ended={one.name: one.expires_at for one in ever if one.expires_at <= now},
    )
