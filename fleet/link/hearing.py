"""Keeping in the rows who was heard, by a thread and a connection to the store of its own.

Nothing else that the link does for the store is waited for: what has come by its bytes is noted (`protocol.Heard`), and
all of it is written every two seconds, with the moment until which that is all (`fleet.core.hearing`). Other writers of
this process begin nothing meanwhile; those of other processes are waited for as long as they hold what it writes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from channels.db import database_sync_to_async
from django.db import connection, transaction
from django.utils import timezone

from fleet.actions import observe
from fleet.core.hearing import LEASE_S
from fleet.link.sessions import Sessions, unwritten
from llmgw.cluster import leases

log = logging.getLogger(__name__)

EVERY_S = 2.0
_LEAST_S = 0.2
"""Between two visits to the store that is late."""
_READ_S = 0.01
"""The event loop looks after every socket that has something, before this is over."""
_TRIES = 5
_AGAIN_S = 0.1


class Hearing:
    """Keeps the link's lease too: it says until when all that was heard is in the rows."""

    def __init__(self, sessions: Sessions, link: str, holder: str) -> None:
        self._sessions, self._link, self._holder = sessions, link, holder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hearing")
        self._visit = database_sync_to_async(self._store, thread_sensitive=False, executor=self._thread)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            begun = time.monotonic()
            try:
                await self.write()
            except asyncio.CancelledError:
                raise
            except Exception:  # the store may be away: what was heard is written with the next
                log.exception("who was heard could not be written; it is tried again")
            await asyncio.sleep(max(EVERY_S - (time.monotonic() - begun), _LEAST_S))

    async def write(self) -> None:
        """Whoever was heard until now is in the rows after it."""
        until = timezone.now()
        await asyncio.sleep(_READ_S)  # what had come by then, and was not read yet, is read now
        heard = [(s, s.heard.at, beat) for s in self._sessions if (beat := unwritten(s)) is not None]
        parted = dict(self._sessions.parted)
        self._sessions.free.clear()
        try:
            busy = await self._visit([*parted.values(), *(beat for _, _, beat in heard)], until)
        finally:
            self._sessions.free.set()
        for session, at, _ in heard:
            if session.node_id not in busy:
                session.noted = at
                self._sessions.spoke.add(session.node_id)
        for node, beat in parted.items():
            if node not in busy and self._sessions.parted.get(node) is beat:
                del self._sessions.parted[node]

    def close(self) -> None:
        self._thread.submit(lambda: connection.close())  # that of the thread in which it is asked for
        self._thread.shutdown(wait=False)

    def _store(self, beats: Sequence[observe.Beat], until: datetime) -> frozenset[str]:
        """The nodes whose rows others held all the time: nothing is told then, and they are written with the next."""
        stands_until = until + timedelta(seconds=LEASE_S)
        for _ in range(_TRIES):
            with transaction.atomic():
                busy = observe.beats(beats)
                if busy:
                    beats = [b for b in beats if b.node_id in busy]
                elif not leases.extend(self._link, self._holder, stands_until):
                    leases.hold(self._link, self._holder, LEASE_S)  # a store that was lost knows of no lease
            if not busy:
                break
            time.sleep(_AGAIN_S)
        return busy
