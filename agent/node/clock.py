"""The clock that the agent is given. Durations come from `monotonic`; `wall` is only ever shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    monotonic: Callable[[], float] = time.monotonic
    """Seconds that no step of the wall clock moves."""
    wall: Callable[[], float] = time.time
    """Unix seconds."""
