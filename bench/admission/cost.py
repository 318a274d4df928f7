"""What the door costs a request that need not wait: microseconds of the real `Doors`, without sockets."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

from gateway.core.load import Load
from gateway.core.principal import Principal
from gateway.core.request import CHAT, Request
from gateway.core.snapshot import Endpoint, ModelEntry, Scope, Snapshot
from gateway.core.usage import Usage
from gateway.edge.queue import Doors

REQUEST = Request(CHAT, "m", False, False, False, 100, False)
BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100}'


def door_us(replicas: int, held: int, rounds: int = 5_000) -> float:
    """Of `enter` and `over` together, with `held` requests at the replicas, the best of thirty."""
    loads = [Load(Endpoint(f"r-{n}", "m", "h", n, "n", parallel=64)) for n in range(replicas)]
    edge = SimpleNamespace(
        snapshots=SimpleNamespace(current=Snapshot()),
        fleet=SimpleNamespace(of=lambda model: loads),
        others=SimpleNamespace(waits={}),
        metrics=None,
        loop=None,
    )
    doors, entry = Doors(cast(Any, edge)), ModelEntry("m", state="serving")

    def exchange(project: str) -> Any:
        return SimpleNamespace(
            who=Principal(Scope("o", "t", project), f"k-{project}"),
            request=REQUEST,
            raw=BODY,
            client=SimpleNamespace(header=lambda name: None),
            replica=loads[0],
            tally=SimpleNamespace(usage=Usage(10, 20), content_sent=True),
        )

    for n in range(held):
        doors.enter(exchange(f"h-{n % 20}"), entry)
        loads[n % replicas].begin(0.0)
    ours = exchange("p")
    best = float("inf")
    for _ in range(30):
        began = time.perf_counter()
        for _ in range(rounds):
            doors.over(ours, doors.enter(ours, entry))
        best = min(best, time.perf_counter() - began)
    return best / rounds * 1e6
