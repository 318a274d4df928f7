"""What the other edges have in flight, replica by replica, and where requests wait, told through Redis once a second.

Each edge keeps one field of one hash. Clocks of machines differ, so an edge counts as alive while its field changes:
each word bears a number, and one that stands still for `STILL_S` is nobody's any more.
"""

from __future__ import annotations

import msgspec

from gateway.edge.replicas import Fleet
from llmgw.demand import EDGES

KEY = EDGES
STILL_S = 5.0
FORGET_S = 60.0
"""After which the field of an edge that is gone is taken out by whoever sees it."""


class _Word(msgspec.Struct):
    n: int
    in_flight: dict[str, int]
    waits: dict[str, float] = msgspec.field(default_factory=dict)
    """Model → the weights of the projects whose requests wait for it there."""


_decoder = msgspec.json.Decoder(_Word)


class Others:
    def __init__(self, edge_id: str, fleet: Fleet) -> None:
        self.id, self._fleet = edge_id, fleet
        self._number = self._alive = 0
        self._alive_at = 0.0
        self._heard: dict[bytes, tuple[int, float]] = {}
        """Edge → the last number, and our time when it came."""
        self.waits: dict[str, float] = {}
        """Of the other edges, by model."""

    @property
    def edges(self) -> int:
        """How many there are, this one too: the most that were heard in the last minute, for a Redis that was emptied
        knows of none."""
        return 1 + self._alive

    def mine(self, waits: dict[str, float] | None = None) -> bytes:
        """This edge's word."""
        self._number += 1
        in_flight = {r.name: r.in_flight for r in self._fleet if r.in_flight}
        return msgspec.json.encode(_Word(self._number, in_flight, waits or {}))

    def heard(self, words: dict[bytes, bytes], now: float) -> list[bytes]:
        """Take up what all edges say; returns the fields of those that are long gone. `now` is monotonic."""
        total: dict[str, int] = {}
        waits: dict[str, float] = {}
        gone: list[bytes] = []
        alive = 0
        for edge, word in words.items():
            if edge == self.id.encode():
                continue
            try:
                said = _decoder.decode(word)
            except msgspec.MsgspecError:
                continue
            number, since = self._heard.get(edge, (-1, now))
            if said.n != number:
                since = now
                self._heard[edge] = (said.n, now)
            if now - since > FORGET_S:
                gone.append(edge)
            elif now - since <= STILL_S:
                alive += 1
                for name, count in said.in_flight.items():
                    total[name] = total.get(name, 0) + count
                for model, weight in said.waits.items():
                    waits[model] = waits.get(model, 0.0) + weight
        self._heard = {edge: seen for edge, seen in self._heard.items() if edge in words}
        if alive >= self._alive or now - self._alive_at > FORGET_S:
            self._alive, self._alive_at = alive, now
        self._share(total)
        self.waits = waits
        return gone

    def silent(self) -> None:
        """Redis is away: nothing is known of the others."""
        self._share({})
        self.waits = {}

    def _share(self, total: dict[str, int]) -> None:
        for replica in self._fleet:
            replica.shared(total.get(replica.name, 0))
