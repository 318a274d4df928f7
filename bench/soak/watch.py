"""What is seen of an edge from outside, once a second: memory, descriptors, tasks, requests in flight, its books."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bench import processes
from bench.edge import Edge
from gateway.core.record import Intent, Settlement, decode
from llmgw import metrics, series


@dataclass(frozen=True, slots=True)
class Sample:
    """`s` since the beginning. `at_rest`: nobody asks."""

    s: float
    rss_mb: float
    descriptors: int
    tasks: int
    in_flight: int
    at_rest: bool = False


class Watch:
    """Reads the books away as a shipper does, so that they do not fill the disk."""

    def __init__(self, edge: Edge, redis_url: str) -> None:
        self._edge, self._redis = edge, redis.Redis.from_url(redis_url)
        self.open: set[str] = set()
        """Requests that have an intent and no settlement."""
        self.settled = 0
        self.twice = 0
        self._read: dict[Path, int] = {}

    def sample(self, s: float, at_rest: bool = False) -> Sample:
        pid = self._edge.contender.pid
        self._ship()
        tasks, in_flight = self._pushed()
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return Sample(s, processes.memory_kb(pid) / 1024, descriptors, tasks, in_flight, at_rest)

    def _pushed(self) -> tuple[int, int]:
        tasks = in_flight = 0
        for key in self._redis.scan_iter(metrics.PREFIX + "edge-*"):
            said: Any = self._redis.get(key)
            for name, _, value in metrics.decode(said).gauges if said else ():
                tasks += int(value) if name == series.EDGE_TASKS.name else 0
                in_flight += int(value) if name == series.IN_FLIGHT.name else 0
        return tasks, in_flight

    def _ship(self) -> None:
        segments = sorted(self._edge.spool.glob("*.jsonl"))
        for path in segments:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            for line in text[:whole].splitlines():
                match decode(line):
                    case Intent() as intent:
                        self.open.add(intent.id)
                    case Settlement() as settlement:
                        self.settled += 1
                        self.twice += settlement.id not in self.open
                        self.open.discard(settlement.id)
            if path != segments[-1]:
                path.unlink()
                self._read.pop(path)
