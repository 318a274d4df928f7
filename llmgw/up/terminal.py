"""What `up` tells a person: one sentence a line, and one line at the bottom that changes in place on a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO


class Teller:
    """`say` adds a line; `show` replaces the line at the bottom (where there is no terminal: only when told to)."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._shown = ""

    def say(self, sentence: str) -> None:
        self._clear()
        print(sentence, file=self._out, flush=True)

    def show(self, line: str, keep: bool = False) -> None:
        """`keep` prints it as a line where nothing can change in place."""
        if not self._live:
            if keep and line != self._shown:
                print(line, file=self._out, flush=True)
                self._shown = line
            return
        line = line[: shutil.get_terminal_size().columns - 1]
        if line != self._shown:
            self._clear()
            self._out.write(line)
            self._out.flush()
            self._shown = line

    def write(self, text: str) -> None:
        """Text as it comes, for a streamed answer."""
        self._clear()
        self._out.write(text)
        self._out.flush()

    def _clear(self) -> None:
        if self._live and self._shown:
            self._out.write("\r\x1b[2K")
        if self._live:
            self._shown = ""


def bar(share: float, width: int = 24) -> str:
    """`[=====     ] 42 %`; `share` in 0..1."""
    full = int(max(0.0, min(1.0, share)) * width)
    return f"[{'=' * full}{' ' * (width - full)}] {share:.0%}"
