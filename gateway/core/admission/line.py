"""Who waits for one model, and who goes next. Pure.

Better bands go first. So that none starves, the tenth place goes to a band that nine requests of better ones have
passed, whatever its share. Within a band projects share by weight (`fair`).
"""

from __future__ import annotations

from gateway.core.admission.fair import Entry, Fair
from gateway.core.admission.room import SHARES, Room, cap

PASSES = 9
"""Requests of better bands that may pass one that waits."""


class Line:
    def __init__(self) -> None:
        self.bands = (Fair(), Fair(), Fair())
        self.waiting = self.held = 0
        self.shares = SHARES
        self._passed = [0, 0, 0]

    def free(self, band: int, room: Room | None) -> bool:
        """Whether a request of `band` need not wait: nobody does, and there is room."""
        return not self.waiting and (room is None or not room.room or room.there < cap(room.room, self.shares[band]))

    def enter(self) -> None:
        """`free` said so. Whoever need not wait takes nothing from anybody, and is in nobody's books."""
        self.held += 1

    def wait(self, entry: Entry) -> None:
        self.bands[entry.band].wait(entry)
        self.waiting += 1

    def next(self, room: Room | None) -> Entry | None:
        """The next is let in, if there is one and room for it. No room at all (all replicas rest) lets nobody in, no
        replica at all lets everybody in: the router has the words for it."""
        if not self.waiting:
            return None
        rank = self._turn(room)
        if rank is None:
            return None
        entry = self.bands[rank].next()
        assert entry is not None
        self.waiting -= 1
        self.held += 1
        self._passed[rank] = 0
        for lower in range(rank + 1, len(self.bands)):
            if self.bands[lower].waiting:
                self._passed[lower] += 1
        return entry

    def _turn(self, room: Room | None) -> int | None:
        ranks = [rank for rank, band in enumerate(self.bands) if band.waiting]
        if room is None:
            return ranks[0]
        if not room.room:
            return None
        if room.there < cap(room.room, self.shares[0]):
            due = max(ranks, key=lambda rank: (self._passed[rank], rank))
            if self._passed[due] >= PASSES:
                return due
        return next((rank for rank in ranks if room.there < cap(room.room, self.shares[rank])), None)

    def left(self, entry: Entry) -> None:
        """It waits no more."""
        fair = self.bands[entry.band]
        fair.left(entry)
        self.waiting -= 1
        if not fair.waiting:
            self._passed[entry.band] = 0

    def over(self, entry: Entry | None = None, tokens: int | None = None) -> None:
        """One that was let in is over: its place is free, and where it waited for it (`entry`), what it took is
        settled. Once for each."""
        self.held -= 1
        if entry is not None:
            self.bands[entry.band].over(entry, tokens)

    def put_out_for(self, entry: Entry) -> Entry:
        """The line is full with `entry` in it: who goes. Somebody of the lowest band below its own; within its own, see
        `fair`."""
        for rank in range(len(self.bands) - 1, entry.band, -1):
            found = self.bands[rank].put_out_for(None)
            if found is not None:
                return found
        return self.bands[entry.band].put_out_for(entry) or entry

    def ahead(self, entry: Entry) -> tuple[int, float]:
        """(requests, tokens) that go before one that waits, as things are now."""
        requests, tokens = self.bands[entry.band].ahead(entry)
        for better in self.bands[: entry.band]:
            requests += better.waiting
            tokens += better.tokens
        return round(requests), tokens

    def weight(self) -> float:
        """Of the projects that wait here."""
        return sum(band.weight for band in self.bands)

    def sweep(self) -> None:
        for band in self.bands:
            band.sweep()
