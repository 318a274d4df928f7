"""Work for the store that many connections have at once, done together: one transaction for all that came while the one
before was under way. A thousand nodes that come at once would else be a thousand commits in a row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from channels.db import database_sync_to_async

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741

MOST = 32
"""At once: others write too."""


class Gathering(Generic[I, O]):
    """`await gathering(item)` gives what `work` made of it. Where the work on several fails, each is tried alone, so
    that one that cannot be done fails by itself."""

    def __init__(
        self, work: Callable[[Sequence[I]], Sequence[O]], most: int = MOST, free: asyncio.Event | None = None
    ) -> None:
        """`free`: while it is not set somebody goes first."""
        self._work, self._most, self._free = work, most, free
        self._waiting: list[tuple[I, asyncio.Future[O]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: I) -> O:
        done: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                if self._free is not None:
                    await self._free.wait()
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                batch = [(item, done) for item, done in batch if not done.done()]  # whoever left needs nothing
                if batch:
                    await self._do(batch)
        finally:
            self._task = None

    async def _do(self, batch: list[tuple[I, asyncio.Future[O]]]) -> None:
        try:
            found = await database_sync_to_async(self._work)([item for item, _ in batch])
        except Exception as e:
            if len(batch) == 1:
                if not batch[0][1].done():
                    batch[0][1].set_exception(e)
                return
            for one in batch:
                await self._do([one])
            return
        for (_, done), result in zip(batch, found, strict=True):
            if not done.done():
                done.set_result(result)
