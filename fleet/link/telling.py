"""What one agent has told and is still to be written. The conversation goes on meanwhile: an agent whose pings had to
wait behind a slow store would take the link for dead, and come again with all that it has to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agent.wire.messages import Heartbeat, Report


class Telling:
    """The newest report and the newest heartbeat after it, written one at a time. `failed` is told what a write raised;
    whatever was waiting is let go then."""

    def __init__(
        self,
        report: Callable[[Report], Awaitable[None]],
        heartbeat: Callable[[Heartbeat], Awaitable[None]],
        failed: Callable[[Exception], Awaitable[None]],
    ) -> None:
        self._write_report, self._write_heartbeat, self._failed = report, heartbeat, failed
        self._report: Report | None = None
        self._heartbeat: Heartbeat | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        return self._task is None

    def report(self, message: Report) -> None:
        """A report says all that the heartbeats before it did."""
        self._report, self._heartbeat = message, None
        self._go()

    def heartbeat(self, message: Heartbeat) -> None:
        self._heartbeat = message
        self._go()

    def drop(self) -> None:
        """What waits is not written any more; what is being written is."""
        self._report = self._heartbeat = None

    def _go(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._report is not None or self._heartbeat is not None:
                if (report := self._report) is not None:
                    self._report = None
                    await self._write_report(report)
                elif (heartbeat := self._heartbeat) is not None:
                    self._heartbeat = None
                    await self._write_heartbeat(heartbeat)
        except Exception as e:
            self.drop()
            await self._failed(e)
        finally:
            self._task = None
