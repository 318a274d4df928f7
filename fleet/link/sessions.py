"""The agents that are connected to this process, by node id: at most one each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agent.wire.messages import Answer, Hello, Message, Refused, Report, Settings
from agent.wire.shard import ShardObserved
from fleet.actions import observe
from fleet.actions.observe import Beat
from fleet.link import admission
from fleet.link.admission import Admitted
from fleet.link.figures import Figures
from fleet.link.gathering import Gathering
from fleet.link.protocol import Peer

Send = Callable[[Message], Awaitable[None]]
SILENCE_S = 6.0
"""An older connection that was heard within this time, or three heartbeats, keeps its place against a second agent."""


@dataclass(eq=False, slots=True)
class Session:
    """One agent's connection."""

    node_id: str
    serial: str
    instance: str | None
    send: Send
    refuse: Callable[[Refused], Awaitable[None]]
    since: datetime
    """When it was let in, as its node's row has it."""
    settings: Settings = field(default_factory=Settings)
    """The newest that it was told, as `settings_version` of the cluster's gave them."""
    settings_version: int = 0
    heard: float = field(default_factory=time.monotonic)
    reported: bool = False
    """Its full report is in the rows: only now may it be told what is wanted."""
    sent: tuple[int, int, bool] | None = None
    """(term, generation, settled) of the newest desired state that was sent."""
    told: tuple[object, ...] | None = None
    """What its last heartbeat said, without the figures that always move."""
    answers: dict[str, asyncio.Future[Answer]] = field(default_factory=dict)


class Sessions:
    """The registry. Used from the event loop alone."""

    def __init__(self) -> None:
        self._by_node: dict[str, Session] = {}
        self.figures = Figures()
        self.beats: dict[str, Beat] = {}
        """Figures that are not yet in the rows."""
        self.gone: dict[str, datetime] = {}
        """Nodes whose connection ended and whose row does not say so yet, with when that connection was let in: the
        row may tell of a newer one by the time it is written."""
        self.admit: Gathering[tuple[Hello, Peer, str], Admitted | Refused] = Gathering(_admit)
        self.report: Gathering[tuple[str, Report, str], None] = Gathering(_report)
        self.news: Gathering[observe.News, None] = Gathering(_news)
        self.look = asyncio.Event()
        """Set: a round should come now."""

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_node.values()))

    def __len__(self) -> int:
        return len(self._by_node)

    def get(self, node_id: str) -> Session | None:
        return self._by_node.get(node_id)

    def rival(self, node_id: str, instance: str | None) -> Refused | None:
        """Why a second agent with this id is not let in; None where it may come (or come back)."""
        held = self._by_node.get(node_id)
        if held is None or (instance is not None and held.instance == instance):
            return None
        silent_s = time.monotonic() - held.heard
        if silent_s > max(SILENCE_S, 3 * held.settings.heartbeat_s):
            return None
        return Refused(
            "duplicate_node",
            f"another agent is connected as {node_id} and was heard {silent_s:.0f} s ago: "
            "end one of the two, or give this machine a node id and a certificate of its own",
            retry_s=10,
        )

    async def add(self, session: Session) -> None:
        """Takes the place of an older connection of the same node."""
        held = self._by_node.get(session.node_id)
        self._by_node[session.node_id] = session
        self.gone.pop(session.node_id, None)
        if held is not None:
            await held.refuse(Refused("replaced", f"a newer connection of {session.node_id} took over", retry_s=5))

    def remove(self, session: Session) -> None:
        if self._by_node.get(session.node_id) is session:
            del self._by_node[session.node_id]
            self.gone[session.node_id] = session.since
            self.figures.gone(session.node_id)
            self.look.set()
        for waiting in session.answers.values():
            waiting.cancel()


def _admit(asked: Sequence[tuple[Hello, Peer, str]]) -> Sequence[Admitted | Refused]:
    """Of one link, and so all under one name."""
    return admission.admit([(hello, peer) for hello, peer, _ in asked], asked[0][2])


def _report(told: Sequence[tuple[str, Report, str]]) -> Sequence[None]:
    observe.reports([(node, message) for node, message, _ in told], store_id=told[0][2])
    return [None] * len(told)


def _news(told: Sequence[observe.News]) -> Sequence[None]:
    observe.heartbeats(told)
    return [None] * len(told)


def essence(shards: tuple[ShardObserved, ...], generation: int | None) -> tuple[object, ...]:
    """What of a heartbeat is news: figures are rounded, so that a breathing engine writes nothing."""
    return (
        generation,
        *(
            (
                s.shard_id,
                s.state,
                s.incarnation,
                s.reason,
                s.pid,
                s.address,
                s.fingerprint,
                None if s.progress is None else round(s.progress, 1),
                None if s.memory_bytes is None else s.memory_bytes >> 26,
                tuple((m.device, m.memory_bytes >> 28) for m in s.devices_memory or ()),
                s.took,
            )
            for s in shards
        ),
    )
