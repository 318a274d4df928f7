"""Everything that is asked of a graphics driver, by one thread: a driver that hangs holds up that thread, and neither
heartbeats nor engines. Whoever asks waits for as long as it can, and then goes by what was known."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from agent.core import cards, smi
from agent.core.holders import Holder, InUse
from agent.node import counters, gpus
from agent.node.nvml import Cards
from agent.wire.facts import INSTANCES, GpuFacts, GpuFigures

_log = logging.getLogger("llmgw.agent")

T = TypeVar("T")
FACTS_S = 15.0
"""How long a report waits for the driver."""
FRESH_S = 20.0
"""Figures that are older are unknown."""
_SMI_EVERY_S = 10.0
_SAME_S, _SAME_SLOW_S = 0.2, 2.0
"""For so long who holds memory is not asked again."""
_TOPOLOGY_AGAIN_S = 600.0
"""After a matrix that could not be had."""


class CardWatch:
    """`smi` is the tool to ask where NVML is not there; `exporter` the address of a dcgm-exporter, or None."""

    def __init__(
        self,
        smi_command: str = "nvidia-smi",
        exporter: str | None = None,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._smi, self._root, self._clock = smi_command, root, clock
        self._exporter = counters.Exporter(exporter, clock) if exporter is not None else None
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._pending: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._known: Cards | None = None
        self._missing: frozenset[str] = frozenset()
        self._near: dict[int, smi.Near] = {}
        self._near_of: tuple[str | None, ...] | None = None
        self._near_at = 0.0
        self._held: tuple[float, dict[int, dict[int, int | None]] | None] | None = None
        self._figures: tuple[float, tuple[GpuFigures, ...]] | None = None

    def cards(self, within_s: float = FACTS_S) -> Cards:
        """The newest facts. A driver that does not answer keeps the cards that were known, each with that problem:
        nothing new is put on them, and what runs there is left alone."""
        try:
            told = self._asked("facts", self._look).result(within_s)
        except Late:
            return self._as_known("the driver does not answer.")
        except gpus.NotTold as e:
            return self._as_known(f"{e}.")
        self._missing = self._not_told(told)
        if self._missing:
            which = ", ".join(sorted(self._missing))
            return self._as_known(f"the driver no longer tells of card {which}: has it fallen off the bus?")
        if told.gpus is None and self._known is not None and self._known.gpus:
            return self._as_known("neither NVML nor nvidia-smi tells of it any more.")
        self._known = told
        return told

    @property
    def slow(self) -> bool:
        """Each look costs a second of a processor."""
        return self._known is not None and self._known.slow

    def held(self, within_s: float) -> dict[int, dict[int, int | None]] | None:
        """See `gpus.held`; None also where the driver does not answer in time."""
        if self._missing:  # what is left is numbered otherwise
            return None
        now = self._clock()
        if self._held is not None and now - self._held[0] < (_SAME_SLOW_S if self.slow else _SAME_S):
            return self._held[1]  # several shards, each of which asks for itself
        try:
            found = self._asked("held", lambda: gpus.held(self._smi)).result(within_s)
        except Late:
            return None
        self._held = (now, found)
        return found

    def use(self, devices: Collection[int], within_s: float) -> tuple[InUse, ...] | None:
        """What of each device is not free now, and by whom; None where nobody tells in time. A card that computes in
        the machine's own memory is left out."""
        if self._missing:
            return None
        try:
            held, free = self._asked("use", self._look_at_use).result(within_s)
        except (Late, gpus.NotTold):
            return None
        known = {gpu.index: gpu for gpu in (self._known or self.cards(within_s)).gpus or ()}
        if held is None or any(d not in known for d in devices):
            return None
        return tuple(
            InUse(
                device,
                known[device].memory_bytes,
                free.get(device),
                tuple(Holder(pid, None, size) for pid, size in held.get(device, {}).items()),
            )
            for device in devices
            if not known[device].unified
        )

    def names(self, devices: Collection[int], within_s: float) -> tuple[str, ...] | None:
        """As `CUDA_VISIBLE_DEVICES` names them; None where an instance's id is not known."""
        if all(d < INSTANCES for d in devices):
            return tuple(map(str, devices))
        ids = {gpu.index: gpu.uuid for gpu in self.cards(within_s).gpus or ()}
        made = [str(d) if d < INSTANCES else ids.get(d) for d in devices]
        return None if None in made else tuple(name for name in made if name is not None)

    def figures(self, every_s: float) -> tuple[GpuFigures, ...] | None:
        """The newest that are known, at once; newer ones are asked for when these are `every_s` old. None: no card is
        known, or the driver has not answered for a while."""
        if self._known is None or not self._known.gpus or self._missing:
            return None
        every_s = max(every_s, _SMI_EVERY_S) if self._known.slow else every_s
        now = self._clock()
        age_s = now - self._figures[0] if self._figures is not None else None
        if age_s is None or age_s >= every_s:
            self._asked("figures", self._measure)
        return self._figures[1] if self._figures is not None and age_s is not None and age_s < FRESH_S else None

    # In the thread

    def _look(self) -> Cards:
        told = gpus.facts(self._smi)
        if not told.gpus:
            return told
        ids = tuple(gpu.uuid for gpu in told.gpus)
        again = not self._near and self._clock() - self._near_at >= _TOPOLOGY_AGAIN_S
        if ids != self._near_of or again:
            self._near, self._near_of, self._near_at = gpus.topology(self._smi), ids, self._clock()
        return replace(told, gpus=tuple(gpus.placed(gpu, self._near, self._root) for gpu in told.gpus))

    def _look_at_use(self) -> tuple[dict[int, dict[int, int | None]] | None, dict[int, int | None]]:
        figures = gpus.figures(self._smi) or ()
        return gpus.held(self._smi), {f.index: f.memory_free_bytes for f in figures}

    def _measure(self) -> None:
        began = self._clock()
        told = gpus.figures(self._smi)
        if told is None:
            return
        if self._exporter is not None and any(f.sm_active_percent is None for f in told):
            told = self._exporter.filled(told, self._known.gpus if self._known is not None else None)
        self._figures = (self._clock(), told)
        took = self._clock() - began
        if took > _SMI_EVERY_S / 2:
            _log.info("asking the cards for their figures took %.1f s", took)

    def _asked(self, name: str, work: Callable[[], T]) -> Future[T]:
        """The same question is on its way once."""
        with self._lock:
            pending = self._pending.get(name)
            if pending is not None and not pending.done():
                return pending
            made: Future[T] = Future()
            self._pending[name] = made
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cards", daemon=True)
                self._thread.start()
        self._work.put((work, made))
        return made

    def _run(self) -> None:
        while True:
            work, told = self._work.get()
            try:
                told.set_result(work())
            except Exception as e:
                if not isinstance(e, gpus.NotTold):
                    _log.exception("the cards could not be asked")
                told.set_exception(e)

    def _not_told(self, told: Cards) -> frozenset[str]:
        """Cards, by their place on the bus, that were told of before. An instance goes with its card, or by itself."""
        if told.gpus is None or self._known is None:
            return frozenset()
        before, now = ({g.bus_id for g in gpus or () if g.bus_id} for gpus in (self._known.gpus, told.gpus))
        return frozenset(before - now)

    def _as_known(self, problem: str) -> Cards:
        if self._known is None:
            return Cards()
        found = self._known.gpus or ()
        return replace(self._known, gpus=tuple(_with_problem(gpu, problem) for gpu in found))


def _with_problem(gpu: GpuFacts, problem: str) -> GpuFacts:
    """Its moving figures are unknown now."""
    return replace(cards.still(gpu), problem=f"{problem} Nothing new is put on it")
