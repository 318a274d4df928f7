"""Start-time fair queueing: whose turn it is among flows that share one server in tokens, by weight. Pure.

Each flow has a virtual time at which its next request starts: the end of its last one, or now, whichever is later; the
earliest goes first, and moves its flow's end on by its tokens over the flow's weight. So between two flows that both
wait all the while, what they got in tokens over weight differs by no more than one largest request of each. A flow
that had nothing to send gathers no credit. Steps are O(log n) of the flows.

What a request really took is known when it is over: `corrected` moves its flow's end by the difference.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class Flow(Generic[T]):
    """One of those that share. `line`: what waits of it, its owner's business."""

    __slots__ = ("_entry", "came", "finish", "held", "line", "name", "start", "tokens", "waiting", "weight")

    def __init__(self, name: str, weight: float, line: T) -> None:
        self.name, self.weight, self.line = name, weight, line
        self.start = self.finish = self.came = 0.0
        """Virtual times: `came`: when it last began to wait."""
        self.waiting = 0
        """Requests of it that wait, and in `tokens` what they are reckoned to take."""
        self.tokens = 0
        self.held = 0
        """Requests of it that waited, were let in and are not over."""
        self._entry = 0
        """The number of its valid place in the heap; 0: none."""


class Shares(Generic[T]):
    def __init__(self) -> None:
        self.flows: dict[str, Flow[T]] = {}
        self.now = 0.0
        """Virtual time: where the last request that was let in started."""
        self._heap: list[tuple[float, int, Flow[T]]] = []
        self._number = 0

    def put(self, name: str, weight: float, line: T) -> Flow[T]:
        """A new flow."""
        flow = self.flows[name] = Flow(name, weight, line)
        flow.finish = self.now
        return flow

    def waits(self, flow: Flow[T], tokens: int) -> None:
        """One more request of it waits."""
        flow.waiting += 1
        flow.tokens += tokens
        if flow.waiting == 1:
            flow.came = self.now
            self._place(flow, max(self.now, flow.finish))

    def first(self) -> Flow[T] | None:
        """The flow whose turn it is."""
        heap = self._heap
        while heap:
            _, number, flow = heap[0]
            if number == flow._entry:
                return flow
            heappop(heap)
        return None

    def served(self, flow: Flow[T], tokens: int) -> None:
        """The first that waits of it is let in."""
        self._leaves(flow, tokens)
        flow.held += 1
        flow.finish = flow.start + tokens / flow.weight
        if flow.start > self.now:
            self.now = flow.start
        if flow.waiting:
            self._place(flow, flow.finish)

    def left(self, flow: Flow[T], tokens: int) -> None:
        """One of those that wait gave up. The flow keeps its turn while others of it wait."""
        self._leaves(flow, tokens)

    def corrected(self, flow: Flow[T], more: int) -> None:
        """A request that was let in took `more` tokens than was reckoned (less, where negative)."""
        flow.held -= 1
        if not more:
            return
        flow.finish += more / flow.weight
        if flow.waiting:  # what it was charged too much it may take back, as far as it has waited for it
            self._place(flow, max(flow.came, flow.start + more / flow.weight))

    def forget_idle(self) -> None:
        """Flows that have nothing here, and no debt."""
        gone = [f.name for f in self.flows.values() if not f.waiting and not f.held and f.finish <= self.now]
        for name in gone:
            del self.flows[name]

    def rest(self) -> None:
        """Nothing waits and nothing is held: what was is over."""
        self.flows.clear()
        self._heap.clear()
        self.now = 0.0

    def _leaves(self, flow: Flow[T], tokens: int) -> None:
        flow.waiting -= 1
        flow.tokens -= tokens
        if not flow.waiting:
            flow._entry = 0

    def _place(self, flow: Flow[T], start: float) -> None:
        self._number += 1
        flow.start, flow._entry = start, self._number
        heappush(self._heap, (start, self._number, flow))
        if len(self._heap) > 2 * len(self.flows) + 16:  # what was corrected left its old places behind
            self._heap = [place for place in self._heap if place[1] == place[2]._entry]
            heapify(self._heap)


def ahead(shares: Shares[T], flow: Flow[T], tokens: float, before: int) -> tuple[float, float]:
    """(requests, tokens) that are let in before `flow` has got `tokens`, `before` requests of its own among them: as if
    all were served at once, each by its weight."""
    requests, total = float(before), tokens
    until = flow.start + tokens / flow.weight
    for other in shares.flows.values():
        if other is flow or not other.waiting:
            continue
        theirs = min(float(other.tokens), max(0.0, (until - other.start) * other.weight))
        requests += other.waiting * theirs / max(1, other.tokens)
        total += theirs
    return requests, total
