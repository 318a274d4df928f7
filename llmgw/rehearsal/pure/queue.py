"""Replicas of one model as a queue: each has so many places, who comes first is served first. Pure.

A place is taken for as long as the answer takes at the batch that it joins; the batch is looked at once, when it joins.
That overstates waiting a little where batches empty, and understates it where they fill.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from llmgw.rehearsal.pure.shape import Ask


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one replica of a model. `measured`: from requests that were answered here, and not from data sheets."""

    start_s: float
    prompt_token_s: float
    step_s: float
    first_s: float = 0.0
    """Of every request before its prompt is read."""
    beside: float = 0.012
    measured: bool = False

    def first(self, prompt: int) -> float:
        return self.first_s + prompt * self.prompt_token_s + self.step_s

    def whole(self, prompt: int, answer: int, batch: int) -> float:
        step_s = self.step_s * (1 + self.beside * max(0, batch - 1))
        return self.first_s + prompt * self.prompt_token_s + answer * step_s


@dataclass
class _Server:
    places: int
    pace: Pace
    born: float
    busy: list[float] = field(default_factory=list)
    """When each answer under way is over, the earliest first."""


@dataclass
class Served:
    """What became of a model's requests."""

    asked: int = 0
    answered: int = 0
    refused: int = 0
    ttft_s: list[float] = field(default_factory=list)
    waited: int = 0
    """Answered ones that waited more than a second for a place."""


class Queue:
    """`ask` in the order of time; `at` before anything is looked at."""

    def __init__(self, patience_s: float, limit: int) -> None:
        self._patience_s, self._limit = patience_s, limit
        self._servers: dict[str, _Server] = {}
        self._waiting: deque[Ask] = deque()
        self.served = Served()
        self.last_asked: float | None = None
        self.refused_since: float | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting_since(self) -> float | None:
        return self._waiting[0].at if self._waiting else None

    @property
    def in_flight(self) -> int:
        return sum(len(s.busy) for s in self._servers.values())

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or any(s.busy for s in self._servers.values())

    def idle(self, replica: str) -> bool:
        server = self._servers.get(replica)
        return server is None or not server.busy

    def begin(self, replica: str, places: int, pace: Pace, now: float) -> None:
        """It serves from `now` on; one that does already goes on."""
        self._servers.setdefault(replica, _Server(places, pace, now))

    def end(self, replica: str, now: float, *, lost: bool) -> None:
        """It takes nothing more. `lost`: what it worked on is lost too, and counted as refused."""
        server = self._servers.pop(replica, None)
        if server is not None and lost:
            self.served.refused += sum(over > now for over in server.busy)

    @property
    def replicas(self) -> frozenset[str]:
        return frozenset(self._servers)

    def ask(self, ask: Ask) -> None:
        self.at(ask.at)
        self.served.asked += 1
        self.last_asked = ask.at
        if len(self._waiting) >= self._limit:
            self.served.refused += 1
            return
        self._waiting.append(ask)
        self.at(ask.at)

    def at(self, now: float) -> None:
        """Everything that happens until `now`."""
        while self._waiting:
            head = self._waiting[0]
            free = self._next_place(head.at)
            due = head.at + self._patience_s
            if free is None or free[0] > due:
                if due > now:
                    break
                self._waiting.popleft()
                self.served.refused += 1
                continue
            if free[0] > now:
                break
            self._waiting.popleft()
            self._serve(head, *free)
        for server in self._servers.values():
            while server.busy and server.busy[0] <= now:
                heapq.heappop(server.busy)

    def _next_place(self, since: float) -> tuple[float, str] | None:
        """When and where the first place is free, not before `since`; of several free ones the emptiest replica's."""
        best: tuple[float, int, str] | None = None
        for name, server in self._servers.items():
            while server.busy and server.busy[0] <= since:
                heapq.heappop(server.busy)
            if len(server.busy) < server.places:
                found = (max(since, server.born), len(server.busy), name)
            else:
                found = (server.busy[0], len(server.busy), name)
            if best is None or found < best:
                best = found
        return None if best is None else (best[0], best[2])

    def _serve(self, ask: Ask, begins: float, replica: str) -> None:
        server = self._servers[replica]
        while server.busy and server.busy[0] <= begins:
            heapq.heappop(server.busy)
        heapq.heappush(server.busy, begins + server.pace.whole(ask.prompt, ask.answer, len(server.busy) + 1))
        self.served.answered += 1
        wait_s = begins - ask.at
        self.served.ttft_s.append(wait_s + server.pace.first(ask.prompt))
        self.served.waited += wait_s > 1.0
