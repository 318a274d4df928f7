"""Weights that are only pretended: they take their time to come, and are then a small file for all."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.node.weights import Progress, Weights
from agent.wire.shard import Source

_STEP_S = 0.5
_HEADER = struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)
"""Version 3, no tensors, no metadata."""


@dataclass(frozen=True, slots=True)
class PretendedWeights(Weights):
    """See `Weights`. `size_of` tells the bytes of a source; `here` are those that lie on the node already."""

    size_of: Callable[[str], int] = lambda url: 0
    bytes_s: float = 1.25e9
    here: set[str] = field(default_factory=set)

    async def fetch(self, source: Source, progress: Progress) -> Path:
        if source.url not in self.here:
            takes_s = self.size_of(source.url) / self.bytes_s
            slept = 0.0
            while slept < takes_s:
                progress(slept / takes_s)
                await asyncio.sleep(min(_STEP_S, takes_s - slept))
                slept += _STEP_S
            self.here.add(source.url)
        # Of a folder without a config, and of a file that is a header alone, nothing is known.
        if not source.url.split("@")[0].endswith(".gguf"):
            return self.folder
        file = self.folder / "pretended.gguf"
        if not file.exists():
            file.write_bytes(_HEADER)
        return file

    def whole(self) -> tuple[str, ...]:
        return tuple(sorted(self.here))

    def listed(self) -> list[dict[str, Any]]:
        return [{"url": url, "path": "(pretended)", "size_bytes": self.size_of(url)} for url in sorted(self.here)]
