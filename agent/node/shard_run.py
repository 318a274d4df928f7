"""One shard's life on this node: fetched, started (or taken over), watched, ended. One task a shard."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.core import gang
from agent.core.converge import Held
from agent.core.last_words import Exit, card_cause, sentence
from agent.core.readiness import Found, Verdict
from agent.node import freeing, launching, logs, shardfile
from agent.node.asking import ask
from agent.node.context import Context
from agent.node.ending import end
from agent.node.host import Identity, Process
from agent.node.launching import CannotStart, Died
from agent.node.shardfile import Ended, ShardFile
from agent.node.tracing import ShardTrace
from agent.wire.shard import DeviceMemory, ShardObserved, ShardState, Took

_log = logging.getLogger("llmgw.agent")

_STARTING_POLL_S = 0.05
_READY_POLL_S = 5.0
_SLOW_AFTER_S = 30.0
_SLOW_POLL_S = 0.5
_OVER = (ShardState.STOPPED, ShardState.FAILED)


class ShardRun:
    """A shard as this agent holds it. `changed` is called whenever there is something new to tell; `cores` as in
    `agent.engine.Paths`."""

    def __init__(self, ctx: Context, record: ShardFile, changed: Callable[[], None], cores: int | None = None) -> None:
        self._ctx = ctx
        self._cores = cores
        self._changed = changed
        self.record = record
        self.state = ShardState.STARTING
        self._reason: str | None = None
        self._last_words: tuple[str, ...] | None = None
        self._cause: str | None = None
        self._since = record.since or ctx.clock.wall()
        self._progress: float | None = None
        self.told: ShardState | None = None
        """The state that the control plane was told last."""
        self.adopted = False
        """Another agent started it."""
        self._waits_since = ctx.clock.monotonic()
        """Since when this agent waits for it to be ready: from its start, its taking over, or its falling silent."""
        self.memory_bytes: int | None = None
        self.devices_memory: tuple[DeviceMemory, ...] | None = None
        self._trace = ShardTrace(ctx.tracing, ctx.clock)
        self._asked = 0
        """How often the engine was asked whether it is ready."""
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # What others ask of it

    def held(self) -> Held:
        spec = self.record.spec
        return Held(
            spec.shard_id,
            self.record.store_id,
            spec.incarnation,
            self.record.fingerprint,
            spec.port,
            self.state,
            self.state is not ShardState.FAILED or self.told is self.state,
        )

    def observed(self) -> ShardObserved:
        spec, processes = self.record.spec, self.record.processes
        over = self.state in _OVER
        return ShardObserved(
            shard_id=spec.shard_id,
            state=self.state,
            incarnation=spec.incarnation,
            fingerprint=self.record.fingerprint,
            reason=self._reason,
            last_words=self._last_words,
            pid=processes[-1].pid if processes and not over else None,
            address=self.record.host,
            port=spec.port,
            since=self._since,
            progress=self._progress,
            memory_bytes=None if over else self.memory_bytes,
            adopted=self.adopted,
            replica_id=spec.replica_id,
            model=spec.model,
            devices_memory=None if over else self.devices_memory,
            took=self.record.took if self.record.took != Took() else None,
            cause=self._cause if self.state is ShardState.FAILED else None,
        )

    def begin(self) -> None:
        """Fetches and starts it."""
        self._trace.starts(self.record.spec)
        self._set(ShardState.FETCHING)
        self._run(self._whole_life())

    def take_over(self, processes: tuple[Process, ...]) -> None:
        """It runs already: another agent started it."""
        self.adopted = True
        self.state = ShardState.LOADING
        self.record = replace(self.record, processes=tuple(p.identity for p in processes))
        self._run(self._adopted_life(processes))

    def was_over(self, ended: Ended) -> None:
        """It ended before this agent came, or while no agent was here."""
        self.state = ShardState(ended.state)
        self._reason, self._last_words, self._since = ended.sentence, ended.last_words or None, ended.at
        self._cause = ended.cause

    def own(self, store_id: str) -> None:
        """It is that store's from now on. A note that cannot be written is made again by the next agent: the order
        that it rests on is sent at every connection."""
        if self.record.store_id == store_id:
            return
        _log.info("shard %s: is now of store %s", self.record.spec.shard_id, store_id)
        self.record = replace(self.record, store_id=store_id)
        try:
            launching.save(self._ctx, self.record)
        except CannotStart as e:
            _log.warning("%s", e)

    def stop(self, reason: str) -> None:
        """Asks it to end; its state tells when it has."""
        if self.state in _OVER or self._stop.is_set():
            return
        self._set(ShardState.STOPPING, reason)
        self._trace.stops(self.record.spec)
        self._stop.set()

    async def over(self) -> None:
        """Returns when its task has nothing more to do."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def forget(self) -> None:
        """Removes what it kept on disk."""
        spec = self.record.spec
        shardfile.remove(self._ctx.home, spec.shard_id)
        shutil.rmtree(launching.scratch_of(self._ctx, spec.shard_id), ignore_errors=True)
        logs.remove(Path(self.record.log))

    def leave(self) -> None:
        """The agent goes; the engine stays."""
        if self._task is not None:
            self._task.cancel()

    def leaders(self) -> tuple[Identity, ...]:
        """The processes that were started for it, while it lives."""
        return () if self.state in _OVER else self.record.processes

    # Its life

    def _run(self, life: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(life, name=f"shard {self.record.spec.shard_id}")

    async def _whole_life(self) -> None:
        processes: list[Process] = []
        starting = asyncio.create_task(self._start(processes))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                starting.cancel()
                await asyncio.wait({starting})
                await self._end_all()
                self._finish(ShardState.STOPPED, self._reason or "it was stopped")
                return
            starting.result()
        except CannotStart as e:
            await self._end_all(grace_s=0)
            self._cause = e.cause
            self._finish(ShardState.FAILED, str(e), self._tail() if processes else (), "cannot_start")
            return
        except Died as e:
            await self._died(e.exit, sidecar=True)
            return
        except Exception as e:
            _log.exception("shard %s could not be started", self.record.spec.shard_id)
            await self._end_all(grace_s=0)
            self._finish(ShardState.FAILED, f"the agent could not start it: {type(e).__name__}: {e}")
            return
        finally:
            for task in (starting, stopping):
                task.cancel()
        await self._watch(tuple(processes))

    async def _adopted_life(self, processes: tuple[Process, ...]) -> None:
        with contextlib.suppress(CannotStart):
            launching.save(self._ctx, self.record)
        await self._watch(processes)

    async def _start(self, processes: list[Process]) -> None:
        spec = self.record.spec
        engine = self._ctx.engines.get(spec.profile.engine)
        launching.refuse(engine, spec)
        assert engine is not None
        launching.save(self._ctx, self.record)
        began = self._ctx.clock.monotonic()
        self._trace.step("fetch weights")
        paths = await launching.prepare(self._ctx, engine, spec, self.record.host, self._fetched)
        paths = replace(paths, cores=self._cores)
        self._took(fetch_s=self._ctx.clock.monotonic() - began)
        self._trace.step("launch engine")
        self._progress = None
        self._set(ShardState.STARTING)
        started = await launching.start(self._ctx, engine, self.record, paths, processes, self._waits_for)
        owner, self.record = self.record.store_id, started
        self._trace.step("wait for engine")
        self.own(owner)  # another store may have taken it over meanwhile
        _log.info("shard %s: started %s as pid %d", spec.shard_id, engine.name, self.record.processes[-1].pid)

    async def _watch(self, processes: tuple[Process, ...]) -> None:
        """Until one of its processes ends, or it is to stop."""
        deaths = [asyncio.create_task(p.ended()) for p in processes]
        stopping = asyncio.create_task(self._stop.wait())
        poll: asyncio.Task[Found] | None = None
        server = processes[-1].identity
        self._waits_since = self._ctx.clock.monotonic()
        try:
            while True:
                poll = poll or asyncio.create_task(ask(self._ctx, self.record, self.state is ShardState.READY))
                await asyncio.wait({*deaths, stopping, poll}, return_when=asyncio.FIRST_COMPLETED)
                dead = next((d for d in deaths if d.done()), None)
                if dead is not None:  # by itself: nobody has signalled it yet, also where it is to stop by now
                    await self._died(dead.result(), sidecar=dead is not deaths[-1])
                    return
                if self._stop.is_set():
                    await self._end_all()
                    self._finish(ShardState.STOPPED, self._reason or "it was stopped")
                    return
                self._judge(poll.result())
                poll = None
                late = self._late()
                if late is not None:
                    await self._end_all(grace_s=1.0)
                    self._finish(ShardState.FAILED, late, self._tail(), "not_ready_in_time")
                    return
                await asyncio.wait(
                    {*deaths, stopping}, timeout=self._pause(server), return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            for task in (*deaths, stopping, poll):
                if task is not None:
                    task.cancel()

    def _judge(self, asked: Found) -> None:
        found = asked.verdict
        self._asked += 1
        if self.state is ShardState.READY:
            if found is Verdict.STARTING:
                self._waits_since = self._ctx.clock.monotonic()
                self._set(ShardState.LOADING, "the engine lives, and no longer answers on its port")
            return
        self._time(found)
        if found is Verdict.READY:
            members = self._ctx.host.members({"": self.leaders()})[""]
            self.memory_bytes = self._ctx.host.resident_bytes(members)
            self._trace.over("", **{"llmgw.asked": self._asked})
            self._set(ShardState.READY)
            _log.info("shard %s: ready", self.record.spec.shard_id)
        elif found is Verdict.OFF_CARD:
            self._set(ShardState.LOADING, asked.sentence)
        elif found is Verdict.FOREIGN:
            self._set(ShardState.STARTING, f"another process answers on port {self.record.spec.port}: it is waited for")
        elif found is Verdict.LOADING:
            self._set(ShardState.LOADING)
        elif self.state is ShardState.FETCHING:
            self._set(ShardState.STARTING)

    def _pause(self, server: Identity) -> float:
        if self.state is ShardState.READY:
            return _READY_POLL_S
        return _STARTING_POLL_S if self._ctx.host.age_s(server) < _SLOW_AFTER_S else _SLOW_POLL_S

    def _late(self) -> str | None:
        limit = gang.patience_s(self.record.spec)
        if self.state is ShardState.READY or self._ctx.clock.monotonic() - self._waits_since < limit:
            return None
        why = f": {self._reason}" if self._reason else ""
        return f"{self._title} did not become ready within {limit:g} s and was ended{why}"

    async def _died(self, exit_: Exit, *, sidecar: bool) -> None:
        died = self._ctx.clock.wall()  # of several ranks the first to die is blamed: ending what is left takes time
        before = {ShardState.READY: "", ShardState.LOADING: "loading"}.get(self.state, "starting")
        lines = self._tail()
        title = f"a sidecar of {self._title}" if sidecar else self._title
        if self.record.spec.world_size > 1:
            title = f"{title}, rank {self.record.spec.rank},"
        await self._end_all(grace_s=0)
        words = sentence(title, exit_, lines, while_=before)
        if (cause := card_cause(lines)) is not None:
            self._cause, held = await freeing.wanting(self._ctx, self.record.spec, cause)
            words += f"; {held}" if held else ""
        self._finish(ShardState.FAILED, words, lines, "ended", died)

    async def _end_all(self, grace_s: float | None = None) -> None:
        spec = self.record.spec
        grace = spec.profile.stop_grace_s if grace_s is None else grace_s
        gone = await end(
            self._ctx.host,
            self._ctx.clock,
            self._ctx.home.id,
            spec.shard_id,
            self.record.launch,
            self.record.processes,
            grace,
        )
        if not gone:
            _log.error("shard %s: processes are left that do not die", spec.shard_id)

    # Telling

    @property
    def _title(self) -> str:
        return {"llamacpp": "llama.cpp"}.get(self.record.spec.profile.engine, self.record.spec.profile.engine)

    def _tail(self) -> tuple[str, ...]:
        return logs.tail(Path(self.record.log), 20, (self.record.spec.key,))

    def _waits_for(self, what: str | None) -> None:
        self._trace.step("launch engine" if what is None else "wait for rendezvous")
        if self.state is ShardState.STARTING:
            self._set(ShardState.STARTING, what)

    def _time(self, found: Verdict) -> None:
        """Notes how long the parts of a start took; not of one that was taken over in the midst of it."""
        took, server = self.record.took, self.record.processes[-1]
        if self.adopted or found in (Verdict.STARTING, Verdict.FOREIGN):
            return
        age_s = self._ctx.host.age_s(server)
        if took.start_s is None:
            self._took(start_s=age_s)
        if found is Verdict.READY and took.load_s is None:
            self._took(load_s=max(age_s - (self.record.took.start_s or 0.0), 0.0))
            with contextlib.suppress(CannotStart):
                launching.save(self._ctx, self.record)

    def _took(self, **parts: float) -> None:
        rounded = {name: round(seconds, 2) for name, seconds in parts.items()}
        self.record = replace(self.record, took=replace(self.record.took, **rounded))

    def _fetched(self, part: float | None) -> None:
        whole = None if part is None else round(part, 3)
        if whole is not None and self._progress is not None and whole - self._progress < 0.01 and whole < 1:
            return
        self._progress = whole
        self._changed()

    def _set(self, state: ShardState, reason: str | None = None, since: float | None = None) -> None:
        if (state, reason) == (self.state, self._reason):
            return
        if state is not self.state:
            self._since = self._ctx.clock.wall() if since is None else since
        self.state, self._reason = state, reason
        self._changed()

    def _finish(
        self,
        state: ShardState,
        reason: str,
        lines: tuple[str, ...] = (),
        code: str = "",
        since: float | None = None,
    ) -> None:
        self._trace.over(code or ("failed" if state is ShardState.FAILED else ""))
        self._last_words = lines or None
        at = self._ctx.clock.wall() if since is None else since
        ended = Ended(state.value, reason, lines, at, self._cause)
        self.record = replace(self.record, ended=ended)
        try:
            launching.save(self._ctx, self.record)
        except CannotStart as e:
            _log.warning("%s", e)
        level = logging.WARNING if state is ShardState.FAILED else logging.INFO
        _log.log(level, "shard %s %s: %s", self.record.spec.shard_id, state.value, reason)
        self._set(state, reason, since)
