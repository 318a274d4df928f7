"""Durations as people write them: `90`, `90s`, `5m`, `1h30m`, `80ms`. Pure."""

from __future__ import annotations

import math
import re
from typing import Any

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)


def seconds(value: Any) -> float | None:
    """None: it is no duration."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    match = _DURATION.fullmatch(value.strip())
    if match is None or not any(match.groups()):
        return None
    hours, minutes, rest, ms = (int(g or 0) for g in match.groups())
    return hours * 3600 + minutes * 60 + rest + ms / 1000


def written(value: float) -> str | float:
    """The same duration as people write it: `90s`, `5m`, `2h`; one that is no whole number of seconds stays one."""
    if value != int(value):
        return value
    hours, rest = divmod(int(value), 3600)
    minutes, left = divmod(rest, 60)
    if hours and not rest:
        return f"{hours}h"
    return f"{hours * 60 + minutes}m" if (hours or minutes) and not left else f"{int(value)}s"
