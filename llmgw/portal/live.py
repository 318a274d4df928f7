"""Live pages: one producer a process looks once a second, renders once a language, and tells everybody who watches.

A viewer that reads slowly gets the newest of each part, not all of them. A stream ends after some minutes, so that
the browser comes again and is asked anew who it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from django.db import close_old_connections

from fleet.selectors import machines
from llmgw.portal import gpumap, node_cards, overview

PERIOD_S = 1.0
LIFE_S = 300.0
SILENCE_S = 15.0

log = logging.getLogger(__name__)


Topic = str
"""What a page shows that moves by itself: a name of `SOURCES`, and what of it after a colon. "": nothing does."""

SOURCES: dict[str, tuple[Callable[[], Any], Callable[[Any, str, str], dict[str, str]]]] = {
    "cluster": (overview.load, lambda found, language, _of: overview.render(found, language)),
    "gpus": (machines.look, gpumap.render),
    "node": (machines.look, node_cards.render),
}
"""How each is read, once for all who watch, and how its parts are drawn in a language."""


@dataclass(eq=False, slots=True)
class Viewer:
    """One open page. It hears that something moved, unless it shows all of that by its topic (`moves` is False)."""

    language: str
    topic: Topic
    moves: bool = True
    pending: dict[str, str] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, events: dict[str, str]) -> None:
        if events:
            self.pending.update(events)
            self.wake.set()


class Producer:
    """Runs only while somebody watches; its thread keeps one connection to the store."""

    def __init__(self) -> None:
        self.viewers: set[Viewer] = set()
        self.closed = False
        self.passes = 0
        self._task: asyncio.Task[None] | None = None
        self._known: dict[tuple[Topic, str], dict[str, str]] = {}
        self._stamp = 0
        self._pool = ThreadPoolExecutor(1, "live")

    def join(self, viewer: Viewer) -> None:
        self.viewers.add(viewer)
        viewer.tell(self._known.get((viewer.topic, viewer.language), {}))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, viewer: Viewer) -> None:
        self.viewers.discard(viewer)

    def close(self) -> None:
        self.closed = True
        for viewer in self.viewers:
            viewer.wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self.viewers and not self.closed:
            watched = {(v.topic, v.language) for v in self.viewers if v.topic}
            try:
                stamp, rendered = await loop.run_in_executor(self._pool, _look, watched)
            except Exception:  # the store may be away for a moment; the next look mends it
                log.warning("could not look for the live pages", exc_info=True)
            else:
                self._tell(stamp, rendered)
            self.passes += 1
            await asyncio.sleep(PERIOD_S)
        self._known.clear()

    def _tell(self, stamp: int, rendered: dict[tuple[Topic, str], dict[str, str]]) -> None:
        moved = {"moved": str(stamp)} if self._stamp and stamp != self._stamp else {}
        self._stamp = stamp
        changes = {
            watched: {part: html for part, html in parts.items() if self._known.get(watched, {}).get(part) != html}
            for watched, parts in rendered.items()
        }
        self._known = rendered
        for viewer in self.viewers:
            viewer.tell(changes.get((viewer.topic, viewer.language), {}) | (moved if viewer.moves else {}))


def _look(watched: Iterable[tuple[Topic, str]]) -> tuple[int, dict[tuple[Topic, str], dict[str, str]]]:
    close_old_connections()
    seen: dict[Callable[[], Any], Any] = {overview.load: overview.load()}
    rendered = {}
    for topic, language in watched:
        name, _, of = topic.partition(":")
        load, render = SOURCES[name]
        if load not in seen:
            seen[load] = load()
        rendered[topic, language] = render(seen[load], language, of)
    return overview.stamp(seen[overview.load]), rendered


producer = Producer()


def close() -> None:
    """End every stream: the process is about to stop."""
    producer.close()


async def events(language: str, topic: Topic, *, moves: bool = True) -> AsyncIterator[str]:
    """A viewer's server-sent events: `part` with JSON {id, html}, `moved`, and a comment in silence."""
    viewer = Viewer(language, topic, moves)
    producer.join(viewer)
    until = asyncio.get_running_loop().time() + LIFE_S
    try:
        yield "retry: 2000\n\n"
        while not producer.closed and asyncio.get_running_loop().time() < until:
            try:
                async with asyncio.timeout(SILENCE_S):
                    await viewer.wake.wait()
            except TimeoutError:
                yield ": quiet\n\n"
                continue
            viewer.wake.clear()
            pending, viewer.pending = viewer.pending, {}
            for name, body in pending.items():
                yield event(name, body)
    finally:
        producer.leave(viewer)


def event(name: str, body: str) -> str:
    if name == "moved":
        return f"event: moved\ndata: {body}\n\n"
    return f"event: part\ndata: {json.dumps({'id': name, 'html': body})}\n\n"
