"""Notices that agent.yaml was edited, and whether the agent can start again on it.

A file that is being saved is left alone until it stood still from one look to the next. What does not load, or says
what the agent runs on already, starts nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.node.settings import Settings, read

EVERY_S = 1.0
_GONE = (-1,)


class Edits:
    """`running` is what the agent began with; `problem` says why the file, as it stands, is not used."""

    def __init__(self, path: Path, running: Settings, environ: Mapping[str, str] = os.environ) -> None:
        self.running = running
        self.problem: str | None = None
        self._path = path
        self._environ = environ
        self._seen: tuple[int, ...] = ()
        self._judged: tuple[int, ...] = ()

    async def edited(self, told: Callable[[], None], every_s: float = EVERY_S) -> None:
        """Returns once the file holds other settings, and they load. `told()` follows every change of `problem`."""
        while True:
            before = self.problem
            other = self.look()
            if self.problem != before:
                told()
            if other:
                return
            await asyncio.sleep(every_s)

    def look(self) -> bool:
        """Whether to start again. A file that did not change costs one stat."""
        before, self._seen = self._seen, _state(self._path)
        if self._seen != before or self._seen == self._judged:
            return False
        self._judged = self._seen
        match read(self._path, self._environ):
            case Settings() as found:
                self.problem = None
                return found != self.running
            case problems:
                said = "; ".join(p.sentence for p in problems)
                self.problem = f"{self._path} cannot be used: {said}; the agent runs on what it had"
                return False


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return _GONE
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
