"""Keeping requests on an edge: what goes out is overheard, and written beside the spool by a thread of its own.

Nothing waits for it. What cannot be kept (too large, too much waiting, no space) is dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.core import kept
from gateway.core.kept import Kept
from gateway.edge.overheard import Overheard
from llmgw import metrics, series

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange

log = logging.getLogger(__name__)
FOLDER = "kept"
SUFFIX = ".kept"
GATHER_S = 0.5
"""Requests that end within it share a file."""
MOST_WAITING_BYTES = 64 * 1024 * 1024
"""In this process, until the thread has written them."""
MOST_SPACE_BYTES = 1024 * 1024 * 1024
"""In the folder, until they are shipped."""


@dataclass(slots=True)
class Keeping:
    """One request that is being kept. `request` is set when it is sent; empty: it never was."""

    id: str
    at: float
    project: str
    endpoint: str
    model: str
    stream: bool
    replay_of: str
    heard: list[bytes] = field(default_factory=list)
    size: int = 0
    request: bytes = b""

    def hear(self, data: bytes) -> None:
        if self.size < kept.MOST_ANSWER_BYTES:
            self.heard.append(data)
        self.size += len(data)


class Keeper:
    """One edge's."""

    def __init__(self, spool: Path, edge: str) -> None:
        self._folder, self._edge = spool / FOLDER, edge
        self._queue: queue.SimpleQueue[Keeping | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waiting = 0
        self._written = 0
        self._number = 0
        self.dropped: Counter[str] = Counter()
        self._told: Counter[str] = Counter()

    def begin(self, exchange: Exchange) -> Keeping | None:
        """From here on its answer is overheard; None where its project does not want it."""
        who, request, entry = exchange.who, exchange.request, exchange.entry
        if who is None or request is None or entry is None or not kept.wanted(who.scope, exchange.id):
            return None
        project, again = (who.replay.project, who.replay.request) if who.replay is not None else (who.scope.project, "")
        keeping = Keeping(exchange.id, exchange.at, project, exchange.endpoint, entry.name, request.stream, again)
        exchange.client = Overheard(exchange.client, keeping)
        return keeping

    def keep(self, keeping: Keeping) -> None:
        """The request is over."""
        if not keeping.request:
            return
        if len(keeping.request) > kept.MOST_REQUEST_BYTES:
            self.dropped["too_large"] += 1
            return
        size = _size(keeping)
        if self._waiting - self._written + size > MOST_WAITING_BYTES:
            self.dropped["backlog"] += 1
            return
        self._waiting += size
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="kept", daemon=True)
            self._thread.start()
        self._queue.put(keeping)

    def count(self, figures: metrics.Figures) -> None:
        """Once a second, in the edge's own thread."""
        for why, number in list(self.dropped.items()):
            if number > self._told[why]:
                figures.add(series.KEPT_DROPPED, (why,), number - self._told[why])
                self._told[why] = number

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(3)

    # -- the thread

    def _write_all(self) -> None:
        ended = False
        while not ended:
            batch = [self._queue.get()]
            if batch[0] is not None:
                time.sleep(GATHER_S)
            while batch[-1] is not None and not self._queue.empty():
                batch.append(self._queue.get())
            ended = batch[-1] is None
            found = [keeping for keeping in batch if keeping is not None]
            if found:
                self._write(found)
                self._written += sum(map(_size, found))

    def _write(self, batch: list[Keeping]) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = kept.encode([_kept(keeping) for keeping in batch])
            if _held(self._folder) + len(data) > MOST_SPACE_BYTES:
                self.dropped["no_space"] += len(batch)
                return
            self._number += 1
            making = self._folder / f"{self._edge}-{self._number:08d}.new"
            with making.open("xb") as f:
                f.write(data)
            making.rename(making.with_suffix(SUFFIX))
        except OSError as e:
            self.dropped["no_space"] += len(batch)
            log.warning("requests could not be kept: %s", e.strerror)


def _held(folder: Path) -> int:
    """Bytes in files that wait to be shipped; whoever ships them may take one away meanwhile."""
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _size(keeping: Keeping) -> int:
    return len(keeping.request) + min(keeping.size, kept.MOST_ANSWER_BYTES)


def _kept(keeping: Keeping) -> Kept:
    return Kept(
        id=keeping.id,
        at=keeping.at,
        project=keeping.project,
        endpoint=keeping.endpoint,
        model=keeping.model,
        stream=keeping.stream,
        request=kept.packed(keeping.request),
        answer=kept.packed(b"".join(keeping.heard)[: kept.MOST_ANSWER_BYTES]),
        request_bytes=len(keeping.request),
        answer_bytes=keeping.size,
        replay_of=keeping.replay_of,
    )
