"""Waiting, from a command, until the fleet has done what was asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from llmgw.cluster.errors import Conflict

EACH_S = 0.5
PATIENCE_S = 1800.0


def until_none(left: Callable[[], Sequence[str]], timeout_s: float, say: Callable[[str], None], command: str) -> None:
    """Returns when nothing is left; `Conflict`, naming what is, when `timeout_s` is over."""
    deadline, before = time.monotonic() + timeout_s, ""
    while found := left():
        line = "; ".join(found)
        if line != before:
            say(line)
            before = line
        if time.monotonic() >= deadline:
            raise Conflict("not_yet", f"after {timeout_s:g} s it is not done: {line}", command)
        time.sleep(EACH_S)
