"""A rehearsal from its beginning to its end: own control plane, pretended fleet, models, one fault after another, and
after each what must hold."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from django.db import Error as StoreError
from django.db import connections

from agent.wire.reason import Reason
from catalog.core.fields import Fields
from llmgw.machine import Machine
from llmgw.rehearsal import faults as core_faults
from llmgw.rehearsal import invariants, rows, store
from llmgw.rehearsal.control import ControlPlane
from llmgw.rehearsal.faults import KINDS, Fault
from llmgw.rehearsal.injecting import Injector
from llmgw.rehearsal.invariants import Before
from llmgw.rehearsal.machines import Machines
from llmgw.rehearsal.traffic import Clients
from llmgw.rehearsal.worldfile import World

_LOOK_S = 0.3


class Interrupted(Exception):
    """Ctrl-C, or SIGTERM."""


@dataclass
class Outcome:
    """One line of the table: a fault, how long until everything held again, and what did not."""

    title: str
    took_s: float | None = None
    """None: not within the bound."""
    broken: dict[str, list[str]] = field(default_factory=dict)
    ended: int = 0
    """Engines that ended by it."""

    @property
    def held(self) -> bool:
        return not any(self.broken.values())

    def told(self) -> dict[str, Any]:
        return {
            "fault": self.title,
            "back_s": None if self.took_s is None else round(self.took_s, 1),
            **{name: not self.broken.get(name) for name in invariants.NAMES},
            "engines_ended": self.ended,
            "problems": [p for name in invariants.NAMES for p in self.broken.get(name, ())][:20],
        }


class Rehearsal:
    """One run in this process, whose Django is set up on the rehearsal's own home."""

    def __init__(self, world: World, machine: Machine, say: Callable[[str], None]) -> None:
        self._world, self._machine, self._say = world, machine, say
        self._control = ControlPlane(machine, say)
        self._machines = Machines(world, machine.home, machine.pki_dir, self._link_url())
        self._clients: Clients | None = None
        self._stopping = False
        self._injector = Injector(world, self._control, self._machines, self._pause, self._still)
        self._away: set[str] = set()
        self.outcomes: list[Outcome] = []

    def run(self, stay: bool = False) -> list[Outcome]:
        """Until all faults are over; with `stay` until it is interrupted. Everything it started is gone then."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, self._stop)
        with ExitStack() as stack:
            key = store.prepare(self._world, self._machine)
            stack.callback(self._control.end)
            self._say("starting the rehearsal's own control plane …")
            self._control.start(self._still)
            stack.callback(self._machines.end)
            self._machines.begin()
            self._say(f"{len(self._machines.ids)} pretended nodes join …")
            self._machines.tell("start", within_s=self._world.join_within_s)
            if self._world.traffic is not None:
                self._clients = Clients(
                    self._world.traffic, self._machine.local_host, self._machine.port, key, self._world.seed
                )
            with suppress(Interrupted):
                before = self._acts(stack)
                if stay:
                    self._say(f"\nportal    {self._machine.portal_url}   (sign in: llmgw user reset-password)")
                    self._say(f"home      LLMGW_HOME={self._machine.home}\nCtrl-C ends it.")
                    self._say("a fault a line: {do: crash, model: NAME}  {do: node_loss, count: 2, for: 5s}")
                    self._obey(before)
        return self.outcomes

    @contextmanager
    def prepared(self) -> Iterator[tuple[ControlPlane, Machines]]:
        """The control plane up and the nodes' processes there, before any agent dials; all is gone afterwards."""
        with ExitStack() as stack:
            store.prepare(self._world, self._machine)
            stack.callback(self._control.end)
            self._control.start(self._still)
            stack.callback(self._machines.end)
            self._machines.begin()
            yield self._control, self._machines

    def told(self) -> dict[str, Any]:
        """Of the requests: how many came through, and why others did not, the most frequent first."""
        said = self._clients.told if self._clients is not None else None
        times = sorted(said.ttft_s) if said is not None else []
        return {
            "requests": {
                "answered": len(said.ids) if said is not None else 0,
                "failed": len(said.failed) if said is not None else 0,
                "failures": dict(Counter(f[:120] for f in said.failed).most_common(5)) if said is not None else {},
                "ttft_p50_s": round(times[len(times) // 2], 3) if times else None,
            }
        }

    def _acts(self, stack: ExitStack) -> Before:
        before = self._first()
        if self._clients is not None:
            stack.enter_context(self._clients)
        for number, fault in enumerate(self._world.faults, 1):
            self._say(f"[{number}/{len(self._world.faults)}] {fault.title} …")
            outcome = self._meet(fault, before)
            self.outcomes.append(outcome)
            self._say(f"      {_line(outcome)}")
            # What was there before stays the measure; engines are those that run now.
            before = replace(before, engines=invariants.engines(self._machines.seen()))
        return before

    def _obey(self, before: Before) -> None:
        """Faults that somebody types, until an interrupt; the end of the input is none."""
        typed: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(sys.stdin, typed), daemon=True).start()
        while True:
            self._pause(0.3)
            while not typed.empty():
                fault = self._typed(typed.get().strip())
                if fault is None:
                    continue
                before = replace(before, engines=invariants.engines(self._machines.seen()))
                outcome = self._meet(fault, before)
                self.outcomes.append(outcome)
                self._say(f"{fault.title}: {_line(outcome)}")

    def _typed(self, line: str) -> Fault | None:
        if not line:
            return None
        problems: list[Reason] = []
        found: Fault | None = None
        try:
            raw = yaml.safe_load(line)
        except yaml.YAMLError:
            raw = None
        if isinstance(raw, dict):
            fields = Fields(raw, "", problems)
            models = {m.definition.name for m in self._world.models}
            found = core_faults.read(fields, models, set(self._machines.ids), bool(self._world.store_restart))
            fields.done()
        else:
            problems.append(Reason("bad_fault", "a fault is written like {do: node_loss, count: 2, for: 5s}"))
        for problem in problems:
            self._say(problem.sentence)
        return None if problems else found

    def _first(self) -> Before:
        """The first act: everybody in, every model up. Models that fit nowhere wait with their reason."""
        began = time.monotonic()
        wanted = {m.definition.name: max(m.definition.scaling.min, 0) for m in self._world.models}
        before = Before(ready={name: count for name, count in wanted.items() if count})
        outcome = self._settle("everybody joins, every model starts", before, set(), began)
        self.outcomes.append(outcome)
        self._say(f"      {_line(outcome)}")
        seen = self._machines.seen()
        # One too many, of a moment in which a node was silent, is no measure: it goes again.
        found = invariants.ready(rows.load())
        return Before(invariants.engines(seen), {m: min(n, wanted[m]) for m, n in found.items() if wanted.get(m)})

    def _meet(self, fault: Fault, before: Before) -> Outcome:
        known = KINDS[fault.kind]
        seen = self._machines.seen()
        serving = tuple(dict.fromkeys(n.id for n in seen.nodes if n.engines and n.id not in self._away))
        nodes = core_faults.pick(fault, tuple(i for i in self._machines.ids if i not in self._away), serving)
        may_end = self._injector.begin(fault, nodes, seen)
        parked: set[str] = set()
        if known.held and fault.for_s is not None:
            self._injector.hold(fault, nodes)
            may_end |= self._injector.mend(fault, nodes)
        elif known.held:
            if known.nodes and fault.kind in ("node_loss", "cut", "silence", "too_old_agents"):
                self._away |= set(nodes)
            if fault.kind in ("crash_loop", "out_of_memory"):
                parked.add(fault.model)
        return self._settle(fault.title, before, may_end, time.monotonic(), parked)

    def _settle(
        self, title: str, before: Before, may_end: set[str], began: float, parked: set[str] | None = None
    ) -> Outcome:
        """Waits until everything holds, at most as long as the world's bound says."""
        found: dict[str, list[str]] = {}
        while True:
            try:
                seen = self._machines.seen()
                found = invariants.broken(rows.load(), seen, before, may_end, self._away, parked or ())
                found["booked"] = self._unbooked()
            except StoreError as e:
                found = {"owned": [f"the store is away: {str(e).splitlines()[0]}"]}
                connections.close_all()
            took_s = time.monotonic() - began
            ended = len(before.engines - invariants.engines(seen))
            if not any(found.values()):
                return Outcome(title, took_s, found, ended)
            if took_s > self._world.bound_s or found.get("gpus") or found.get("kept"):
                return Outcome(title, None, found, ended)
            self._pause(_LOOK_S)

    def _unbooked(self) -> list[str]:
        if self._clients is None:
            return []
        missing = rows.unbooked(tuple(self._clients.told.ids))
        return [f"{i} was answered and is not booked" for i in missing]

    def _link_url(self) -> str:
        return f"wss://{self._machine.local_host}:{self._machine.link_port}/agent/link"

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._still()
            time.sleep(min(0.1, left))
        self._still()

    def _still(self) -> None:
        if self._stopping:
            raise Interrupted

    def _stop(self, sign: int, frame: Any) -> None:
        self._stopping = True


def _listen(source: Iterable[str], typed: queue.SimpleQueue[str]) -> None:
    for line in source:
        typed.put(line)


def _line(outcome: Outcome) -> str:
    if outcome.held and outcome.took_s is not None:
        return f"all held, {outcome.took_s:.1f} s after it, {outcome.ended} engines ended"
    first = next(p for problems in outcome.broken.values() for p in problems)
    return f"BROKEN: {first}"
