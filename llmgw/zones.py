"""Time zones by their names. Pure."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, tzinfo

from agent.wire.reason import Reason


def zone(name: str) -> tzinfo | Reason:
    """The time zone called `name` (`Europe/Istanbul`), or why there is none."""
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return Reason(
            "bad_time_zone",
            f"a time zone is called like Europe/Istanbul or UTC, and there is none called {name[:80]!r}",
        )


def known(*names: str) -> tzinfo:
    """The first of `names` that this machine knows; UTC where it knows none."""
    return next((found for name in names if name and isinstance(found := zone(name), tzinfo)), UTC)
