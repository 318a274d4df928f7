"""All shards of one node: takes over what it finds, starts and stops what it is told, measures what runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.core import cpu
from agent.core.converge import Forget, Held, Own, Start, Stop, step
from agent.core.source import may_hold_secret
from agent.node import logs, shardfile
from agent.node.context import Context
from agent.node.ending import end
from agent.node.host import Marked, Process
from agent.node.launching import new_record
from agent.node.shard_run import ShardRun
from agent.node.shardfile import Ended, ShardFile
from agent.wire.facts import RankFacts
from agent.wire.messages import Desired
from agent.wire.shard import DeviceMemory, ShardObserved, ShardState

_log = logging.getLogger("llmgw.agent")

_GONE = "the engine was no longer there when the agent came back"
_REBOOTED = "the machine was restarted again and again soon after it began"
_RANK_REBOOTED = "its machine was restarted, and one rank cannot begin alone: all of them begin anew"
_REBOOTS, _QUICK_S = 3, 3600.0
"""So many restarts of the machine in a row, each within so many seconds of a start, are a failure."""


class Supervisor:
    """`changed` is called whenever a shard has something new to tell. `telling`: somebody says what was told of them
    (`told`), and a failure is kept until it was."""

    def __init__(self, ctx: Context, changed: Callable[[], None], *, telling: bool = False) -> None:
        self._telling = telling
        self._ctx = ctx
        self._changed = changed
        self._runs: dict[str, ShardRun] = {}
        self._reboots: dict[str, int] = {}
        """Of shards that a restart of the machine ended, and that begin anew when they are asked for."""

    def held(self) -> tuple[Held, ...]:
        return tuple(run.held() for run in tuple(self._runs.values()))

    def observed(self) -> tuple[ShardObserved, ...]:
        return tuple(run.observed() for run in self._runs.values())

    def told(self, shards: tuple[ShardObserved, ...]) -> None:
        """The control plane has these."""
        for shard in shards:
            run = self._runs.get(shard.shard_id)
            if run is not None and shard.incarnation == run.record.spec.incarnation and run.told is not shard.state:
                run.told = shard.state
                if shard.state is ShardState.FAILED:
                    self._changed()

    def loaded(self) -> frozenset[str]:
        """Sources that engines here run: their weights lie here, also those that were never fetched."""
        urls = (run.record.spec.source.url for run in tuple(self._runs.values()) if run.leaders())
        return frozenset(url for url in urls if not may_hold_secret(url))

    def ranks(self) -> tuple[RankFacts, ...]:
        """Those of several that run here, as they were started."""
        specs = (run.record.spec for run in tuple(self._runs.values()) if run.leaders())
        return tuple(RankFacts(s.shard_id, s.devices, s.gang) for s in specs if s.world_size > 1)

    def log_of(self, shard_id: str) -> tuple[Path, str] | None:
        """Its log and the key that must not be shown of it."""
        run = self._runs.get(shard_id)
        return None if run is None else (Path(run.record.log), run.record.spec.key)

    async def recover(self) -> None:
        """Takes over the engines that another agent left, and ends what is ours and described by nobody."""
        shardfile.sweep(self._ctx.home)
        marked = self._ctx.host.marked(self._ctx.home.id)
        for record in shardfile.read_all(self._ctx.home):
            self._recover(record, marked)
        described = {
            (run.record.spec.shard_id, run.record.launch)
            for run in self._runs.values()
            if run.state not in (ShardState.FAILED, ShardState.STOPPED)
        }
        orphans = {(m.mark.shard_id, m.mark.launch) for m in marked} - described
        for shard_id, _ in sorted(orphans):
            _log.warning("shard %s: processes of it that nobody describes are ended", shard_id)
        await asyncio.gather(
            *(end(self._ctx.host, self._ctx.clock, self._ctx.home.id, s, launch, (), 2.0) for s, launch in orphans)
        )

    def converge(self, desired: Desired | None, host: str) -> None:
        """One step towards `desired`; engines that are started listen on `host`."""
        held = self.held() if self._telling else tuple(replace(h, told=True) for h in self.held())
        for action in step(desired, held):
            match action:
                case Start(spec, store_id):
                    old = self._runs.pop(spec.shard_id, None)
                    if old is not None:
                        old.forget()
                    record = new_record(self._ctx, spec, store_id, host, self._reboots.pop(spec.shard_id, 0))
                    cores = cpu.share(spec, desired.shards if desired is not None else (), self._ctx.cores)
                    run = ShardRun(self._ctx, record, self._changed, cores)
                    self._runs[spec.shard_id] = run
                    run.begin()
                case Own(shard_id, store_id):
                    self._runs[shard_id].own(store_id)
                case Stop(shard_id, sentence):
                    _log.info("shard %s: is to end, as %s", shard_id, sentence)
                    self._runs[shard_id].stop(sentence)
                case Forget(shard_id):
                    self._runs.pop(shard_id).forget()

    async def end_all(self, reason: str) -> None:
        """Ends every shard, gracefully, and forgets it."""
        for run in self._runs.values():
            run.stop(reason)
        await asyncio.gather(*(run.over() for run in self._runs.values()))
        for run in self._runs.values():
            run.forget()
        self._runs.clear()

    def stop_begun(self, reason: str) -> None:
        """Ends what this agent started itself; what it took over goes on."""
        for run in self._runs.values():
            if not run.adopted:
                run.stop(reason)

    def leave(self) -> None:
        """The agent goes; engines stay."""
        for run in self._runs.values():
            run.leave()

    async def settled(self, timeout_s: float) -> None:
        """Returns when every engine that was taken over has been asked once what it does, or after `timeout_s`."""
        until = self._ctx.clock.monotonic() + timeout_s
        while self._ctx.clock.monotonic() < until:
            if all(run.state is not ShardState.LOADING for run in self._runs.values()):
                return
            await asyncio.sleep(0.02)

    def measure(self) -> None:
        """Memory of each shard's processes; logs are kept short. Cheap enough for every few seconds."""
        members = self._ctx.host.members({shard_id: run.leaders() for shard_id, run in self._runs.items()})
        for shard_id, run in self._runs.items():
            if members[shard_id]:
                run.memory_bytes = self._ctx.host.resident_bytes(members[shard_id])
            logs.keep_short(Path(run.record.log), self._ctx.log_bytes)

    async def measure_cards(self) -> None:
        """Memory of each shard's processes on its cards. May take as long as the driver does."""
        runs = {i: run for i, run in self._runs.items() if run.record.spec.devices and run.leaders()}
        if not runs:
            return
        members = self._ctx.host.members({shard_id: run.leaders() for shard_id, run in runs.items()})
        for shard_id, run in runs.items():
            devices = run.record.spec.devices
            held = await asyncio.to_thread(self._ctx.host.device_memory, devices, members[shard_id])
            if held is not None and not any(n is None for n in held.values()):
                run.devices_memory = tuple(DeviceMemory(d, n) for d, n in sorted(held.items()) if n is not None)

    def _recover(self, record: ShardFile, marked: tuple[Marked, ...]) -> None:
        run = ShardRun(self._ctx, record, self._changed)
        processes = () if record.ended is not None else self._living(record, marked)
        begun = len(processes or record.processes) >= record.parts
        rebooted = any(p.boot_id != self._ctx.host.boot_id() for p in record.processes)
        if record.ended is None and not begun and not rebooted:
            # Its agent went before it started all of it (in the midst of a download): it begins anew when asked.
            shardfile.remove(self._ctx.home, record.spec.shard_id)
            return
        self._runs[record.spec.shard_id] = run
        if record.ended is not None:
            run.was_over(record.ended)
            return
        if processes:
            _log.info("shard %s: taken over as pid %d", record.spec.shard_id, processes[-1].identity.pid)
            run.take_over(processes)
            return
        if rebooted and record.spec.world_size == 1:
            quick = self._ctx.clock.wall() - record.since < _QUICK_S
            reboots = record.reboots + 1 if quick else 1
            if reboots <= _REBOOTS:  # no fault of its own; one that takes the machine down each time is another matter
                _log.info("shard %s: the machine was restarted; it begins anew when asked", record.spec.shard_id)
                self._runs.pop(record.spec.shard_id).forget()
                self._reboots[record.spec.shard_id] = reboots
                return
        lines = logs.tail(Path(record.log), 20, (record.spec.key,))
        why = _GONE if not rebooted else _REBOOTED if record.spec.world_size == 1 else _RANK_REBOOTED
        ended = Ended("failed", why, lines, self._ctx.clock.wall())
        run.record = replace(record, ended=ended)
        run.was_over(ended)
        try:
            shardfile.write(self._ctx.home, run.record)
        except OSError as e:
            _log.warning("the record of shard %s could not be written: %s", record.spec.shard_id, e)

    def _living(self, record: ShardFile, marked: tuple[Marked, ...]) -> tuple[Process, ...]:
        """All processes of a record, when every one of them lives; else none: a part of a shard is no shard."""
        identities = record.processes
        mine = sorted(
            (m.identity for m in marked if (m.mark.shard_id, m.mark.launch) == (record.spec.shard_id, record.launch)),
            key=lambda i: i.start_ticks,
        )
        if not identities and len(mine) == 1:
            # The agent died between the start and its note: the marker names the launch, so it is this one.
            identities = tuple(mine)
        found = [self._ctx.host.find(identity) for identity in identities]
        return tuple(p for p in found if p is not None) if all(found) else ()
