"""Who is next within one band: projects by their weights, within a project its keys alike. Pure."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from gateway.core.admission.shares import Flow, Shares, ahead


class State(Enum):
    WAITS = "waits"
    LET_IN = "let_in"
    OVER = "over"
    """It is over, gave up, or was put out."""


Keys = Shares["OrderedDict[Entry, None]"]


class Entry:
    """One request at the door. `tokens`: what it is reckoned to take."""

    __slots__ = ("band", "key", "key_flow", "project", "project_flow", "since", "state", "tokens", "weight")

    def __init__(self, band: int, project: str, key: str, weight: float, tokens: int, since: float) -> None:
        self.band, self.project, self.key, self.weight = band, project, key, weight
        self.tokens = max(1, tokens)
        self.since = since
        """Monotonic seconds."""
        self.state = State.OVER
        self.project_flow: Flow[Keys] | None = None
        self.key_flow: Flow[OrderedDict[Entry, None]] | None = None


class Fair:
    """The requests of one band."""

    def __init__(self) -> None:
        self._projects: Shares[Keys] = Shares()
        self.waiting = self.held = 0
        self.tokens = 0
        """Of those that wait, as reckoned."""
        self.weight = 0.0
        """Of the projects that wait."""

    def wait(self, entry: Entry) -> None:
        project, key = self._flows(entry)
        key.line[entry] = None
        project.line.waits(key, entry.tokens)
        self._projects.waits(project, entry.tokens)
        self.waiting += 1
        self.tokens += entry.tokens
        if project.waiting == 1:
            self.weight += project.weight
        entry.state = State.WAITS

    def next(self) -> Entry | None:
        """The next is let in."""
        project = self._projects.first()
        if project is None:
            return None
        key = project.line.first()
        assert key is not None
        entry, _ = key.line.popitem(last=False)
        project.line.served(key, entry.tokens)
        self._projects.served(project, entry.tokens)
        self._one_less(project, entry)
        self.held += 1
        entry.state = State.LET_IN
        return entry

    def left(self, entry: Entry) -> None:
        """One that waits gives up, or is put out."""
        project, key = entry.project_flow, entry.key_flow
        assert project is not None
        assert key is not None
        del key.line[entry]
        project.line.left(key, entry.tokens)
        self._projects.left(project, entry.tokens)
        self._one_less(project, entry)
        entry.state = State.OVER

    def over(self, entry: Entry, tokens: int | None) -> None:
        """One that was let in is over and took `tokens`; None: nobody knows, so it is as it was reckoned."""
        project, key = entry.project_flow, entry.key_flow
        assert project is not None
        assert key is not None
        more = 0 if tokens is None else tokens - entry.tokens
        project.line.corrected(key, more)
        self._projects.corrected(project, more)
        self.held -= 1
        entry.state = State.OVER

    def ahead(self, entry: Entry) -> tuple[float, float]:
        """(requests, tokens) of this band that go before one that waits."""
        project, key = entry.project_flow, entry.key_flow
        assert project is not None
        assert key is not None
        before = tokens = 0
        for other in key.line:
            if other is entry:
                break
            before += 1
            tokens += other.tokens
        requests, own = ahead(project.line, key, tokens, before)
        return ahead(self._projects, project, own, round(requests))

    def put_out_for(self, entry: Entry | None) -> Entry | None:
        """Of a full line the newest of the project that has the most waiting for its weight, and in it of the key with
        the most. `entry`, of this band and waiting, is put out itself unless they have more than its own; None: of a
        better band, whoever it is."""
        flows = [f for f in self._projects.flows.values() if f.waiting]
        if not flows:
            return None
        project = max(flows, key=lambda f: f.waiting / f.weight)
        key = max((f for f in project.line.flows.values() if f.waiting), key=lambda f: f.waiting)
        last = next(reversed(key.line))
        if entry is None:
            return last
        own, own_key = entry.project_flow, entry.key_flow
        assert own is not None
        assert own_key is not None
        if own is project:
            return last if own_key.waiting < key.waiting else entry
        return last if own.waiting / own.weight < project.waiting / project.weight else entry

    def sweep(self) -> None:
        """Now and then: forget who has nothing here."""
        if not self.waiting and not self.held:
            self._projects.rest()
            return
        self._projects.forget_idle()
        for project in self._projects.flows.values():
            project.line.forget_idle()

    def _one_less(self, project: Flow[Keys], entry: Entry) -> None:
        self.waiting -= 1
        self.tokens -= entry.tokens
        if not project.waiting:
            self.weight = self.weight - project.weight if self.waiting else 0.0

    def _flows(self, entry: Entry) -> tuple[Flow[Keys], Flow[OrderedDict[Entry, None]]]:
        project = self._projects.flows.get(entry.project)
        if project is None:
            project = self._projects.put(entry.project, entry.weight, Shares())
        elif project.weight != entry.weight:
            if project.waiting:
                self.weight += entry.weight - project.weight
            project.weight = entry.weight  # the setting was changed: from here on
        key = project.line.flows.get(entry.key)
        if key is None:
            key = project.line.put(entry.key, 1.0, OrderedDict())
        entry.project_flow, entry.key_flow = project, key
        return project, key
