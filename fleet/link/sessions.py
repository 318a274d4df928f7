"""The agents that are connected to this process, by node id: at most one each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from agent.wire.messages import Answer, Hello, Message, Refused, Report, Settings
from agent.wire.shard import ShardObserved
from fleet.actions import observe
from fleet.actions.observe import Beat
from fleet.link import admission
from fleet.link.admission import Admitted
from fleet.link.figures import Figures
from fleet.link.gathering import Gathering
from fleet.link.protocol import Heard, Peer

Send = Callable[[Message], Awaitable[None]]
END_S = 3.0
"""For an older connection to be told that it is over."""
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
    heard: Heard = field(default_factory=Heard)
    beat: Beat | None = None
    """The newest figures of its heartbeats."""
    noted: float = 0.0
    """`heard.at` as far as the rows know."""
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
        self._ending: set[asyncio.Task[None]] = set()
        self.figures = Figures()
        self.parted: dict[str, Beat] = {}
        """What nodes whose connection ended had said last, until it is in the rows."""
        self.spoke: set[str] = set()
        """Nodes that were heard, as the rows say by now, and of which nobody has looked whether they were given up."""
        self.free = asyncio.Event()
        """Not set: who was heard is being written, and whatever else is to be written waits."""
        self.free.set()
        self.gone: dict[str, datetime] = {}
        """Nodes whose connection ended and whose row does not say so yet, with when that connection was let in: the
        row may tell of a newer one by the time it is written."""
        self.admit: Gathering[tuple[Hello, Peer, str], Admitted | Refused] = Gathering(_admit, free=self.free)
        self.report: Gathering[tuple[str, Report, str], None] = Gathering(_report, free=self.free)
        self.news: Gathering[observe.News, None] = Gathering(_news, free=self.free)
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
        silent_s = time.monotonic() - held.heard.clock
        if silent_s > max(SILENCE_S, 3 * held.settings.heartbeat_s):
            return None
        return Refused(
            "duplicate_node",
            f"another agent is connected as {node_id} and was heard {silent_s:.0f} s ago: "
            "end one of the two, or give this machine a node id and a certificate of its own",
            retry_s=10,
        )

    def add(self, session: Session) -> None:
        """Takes the place of an older connection of the same node."""
        held = self._by_node.get(session.node_id)
        self._by_node[session.node_id] = session
        self.gone.pop(session.node_id, None)
        self.parted.pop(session.node_id, None)
        if held is not None:  # beside: the old one may read nothing any more
            over = Refused("replaced", f"a newer connection of {session.node_id} took over", retry_s=5)
            task = asyncio.create_task(_bounded(held.refuse(over)))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def remove(self, session: Session) -> None:
        if self._by_node.get(session.node_id) is session:
            del self._by_node[session.node_id]
            self.gone[session.node_id] = session.since
            if (beat := unwritten(session)) is not None:
                self.parted[session.node_id] = beat
            self.figures.gone(session.node_id)
            self.look.set()
        for waiting in session.answers.values():
            waiting.cancel()


def unwritten(session: Session) -> Beat | None:
    """That it was heard, with its newest figures, where the rows do not say so yet."""
    if session.heard.at <= session.noted:
        return None
    at = datetime.fromtimestamp(session.heard.at, UTC)
    newest = session.beat or Beat(session.node_id, at)
    return replace(newest, at=at, since=session.since)


async def _bounded(ending: Awaitable[None]) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ending, END_S)


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
