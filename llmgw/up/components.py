"""The processes of one machine, in the order in which they start. Data: what runs, on which socket, how it ends."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.machine import Machine
from llmgw.up import redis


@dataclass(frozen=True, slots=True)
class Component:
    """One process. `socket` names the listener it inherits; `grace_s` is how long SIGTERM may take."""

    name: str
    argv: tuple[str, ...]
    socket: str | None = None
    grace_s: float = 6.0
    late: bool = False
    """Not needed for a first answer: it starts when the processors are free again."""
    env: dict[str, str] = field(default_factory=dict)


def redis_server(machine: Machine, binary: Path) -> Component:
    socket = Path(machine.redis_url.removeprefix("unix://"))
    return Component("redis", (str(binary), *redis.arguments(socket, machine.home / "redis")), grace_s=10.0)


def application(machine: Machine) -> tuple[Component, ...]:
    """Everything above Redis, in starting order."""
    python = sys.executable
    celery = (python, "-m", "celery", "-A", "llmgw.celery")
    return (
        Component("edge", (python, "-m", "gateway.edge"), socket="edge"),
        Component("link", (python, "-m", "fleet.link"), socket="link"),
        Component("agent", (python, "-m", "agent.node.main", "run", "--home", str(machine.agent_dir))),
        Component(
            "worker",
            # Threads: tasks are short and wait for the store; no task outlives its time limit by more than one pass.
            (*celery, "worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "WARNING", *_ALONE),
            grace_s=10.0,
        ),
        Component("web", (python, "-m", "llmgw.web"), socket="web", late=True),
        Component(
            "beat",
            (*celery, "beat", "--loglevel", "WARNING", "--schedule", str(machine.run_dir / "beat")),
            late=True,
        ),
        Component("metrics", (python, "-m", "llmgw.exporter"), socket="metrics", late=True),
    )


_ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")
"""Workers need not know one another: the store and its leases decide."""

ENDING = ("metrics", "edge", "beat", "worker", "agent", "web", "link", "redis")
"""The order in which they end: first no new request comes in, the engines' nurse goes before those it reports to."""
