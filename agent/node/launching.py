"""From a shard's spec to its running processes: weights, checks, record, start. A refusal is a `CannotStart`."""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.core import environment, gang
from agent.core.last_words import Exit
from agent.engine import Engine, Paths, Rendezvous
from agent.node import freeing, gguf_file, interfaces, launchers, model_files, reach, shardfile
from agent.node.context import Context
from agent.node.host import Launch, LaunchFailed, Process
from agent.node.shardfile import ShardFile
from agent.node.weights import Progress, WeightsError
from agent.wire.facts import INSTANCES, NodeFacts, device_name
from agent.wire.reason import Reason
from agent.wire.shard import CARD_HELD, ShardSpec

_ID = re.compile(r"[A-Za-z0-9._-]{1,120}")
_RENDEZVOUS_S = 0.1
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class CannotStart(Exception):
    """Why a shard was not started, in one sentence. `cause`: as `ShardObserved` has it."""

    def __init__(self, sentence: str, cause: str | None = None) -> None:
        super().__init__(sentence)
        self.cause = cause


class Died(Exception):
    """One of its processes ended before the last was started."""

    def __init__(self, exit_: Exit) -> None:
        super().__init__()
        self.exit = exit_


def refuse(engine: Engine | None, spec: ShardSpec) -> None:
    """What can be refused before anything is fetched. Raises `CannotStart`."""
    if engine is None:
        raise CannotStart(f"this agent knows no engine {spec.profile.engine!r}; it may be older than the control plane")
    if not _ID.fullmatch(spec.shard_id):
        raise CannotStart(f"{spec.shard_id[:80]!r} cannot be a shard's id: letters, digits, '.', '_' and '-'")
    if spec.world_size > 1 and not engine.capabilities.multi_node:
        raise CannotStart(f"{engine.name} runs on one node, and a shard of {spec.world_size} was asked for")
    here = None if spec.gang is None else NodeFacts(address=spec.gang.addresses[spec.rank])
    _refuse(engine.problems(spec.profile, here))


def _refuse(problems: tuple[Reason, ...]) -> None:
    """A variable is dropped at launch; an argument cannot be left out without changing what the rest means."""
    refused = [p for p in problems if p.code != "environment_refused"]
    if refused:
        raise CannotStart("; ".join(p.sentence for p in refused))


async def prepare(ctx: Context, engine: Engine, spec: ShardSpec, host: str, progress: Progress) -> Paths:
    """Weights here and whole, a scratch folder, an engine that can be run. Raises `CannotStart`."""
    try:
        weights = await ctx.weights.fetch(spec.source, progress)
    except WeightsError as e:
        raise CannotStart(str(e)) from None
    if engine.capabilities.weights_format == "gguf":
        found = await asyncio.to_thread(gguf_file.problem, weights)
        if found is not None:
            raise CannotStart(found.sentence)
    known = await asyncio.to_thread(model_files.facts, weights)
    if known is not None:
        _refuse(engine.problems(spec.profile, None, known))
    executable = await asyncio.to_thread(ctx.engine_path, spec.profile.engine)
    if executable is None:
        raise CannotStart(f"{engine.name} is not installed on this node")
    scratch = scratch_of(ctx, spec.shard_id)
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ctx.engine_user is not None:
            shutil.chown(scratch, ctx.engine_user)
        if engine.capabilities.launchers:
            launchers.lay_out(engine.capabilities.launchers, scratch, ctx.engine_user)
    except (OSError, LookupError) as e:
        raise CannotStart(f"the engine's folder {scratch} could not be made: {e}") from None
    if ctx.engine_user is not None:
        places = [
            (Path(executable), "the engine", True),
            (weights, "the model file", False),
            (scratch, "its folder", True),
        ]
        if ctx.import_from is not None:
            places.append((Path(ctx.import_from), "the launcher's folder", True))
        for path, what, execute in places:
            problem = reach.problem(ctx.engine_user, path, what, execute=execute)
            if problem is not None:
                raise CannotStart(problem)
    if engine.serves_http(spec.rank):
        taken = ctx.host.port_problem(host, spec.port)
        if taken is not None:
            raise CannotStart(f"the engine's port {spec.port} on {host} cannot be taken: {taken}")
    if spec.rank == 0 and spec.gang is not None:
        taken = ctx.host.port_problem(host, spec.gang.port)
        if taken is not None:
            raise CannotStart(f"the port {spec.gang.port} where the ranks meet cannot be taken on {host}: {taken}")
    interface = None if spec.gang is None else interfaces.holding(spec.gang.addresses[spec.rank])
    return Paths(weights=str(weights), engine=executable, scratch=str(scratch), interface=interface)


async def start(
    ctx: Context,
    engine: Engine,
    record: ShardFile,
    paths: Paths,
    started: list[Process],
    waiting: Callable[[str | None], None],
) -> ShardFile:
    """Starts the shard's processes into `started`, as they come; the record is on disk before and after each.
    `waiting` is told what is waited for. Raises `CannotStart` or `Died`; what was started until then is the caller's
    to end."""
    log = Path(record.log)
    held = await freeing.free(ctx, record.spec, waiting)
    if held is not None:
        raise CannotStart(held, CARD_HELD)
    visible = await _visible(ctx, record.spec)
    commands = engine.commands(record.spec, paths, record.host)
    record = replace(record, parts=len(commands))
    save(ctx, record)
    first = gang.meeting(record.spec, commands)
    for command in commands:
        meeting = command.waits_for or (first if not started else None)
        if meeting is not None:
            await _rendezvous(ctx, meeting, started, waiting)
        if visible is not None and _VISIBLE in command.env:
            command = replace(command, env={**command.env, _VISIBLE: visible})
        env = environment.for_engine(
            ctx.environ,
            command,
            mark=f"{ctx.home.id}/{record.spec.shard_id}/{record.launch}",
            scratch=paths.scratch,
            import_from=launchers.folder(paths.scratch) if engine.capabilities.launchers else ctx.import_from,
        )
        try:
            process = ctx.host.spawn(Launch(command.argv, env, Path(paths.scratch), log, ctx.engine_user))
        except LaunchFailed as e:
            raise CannotStart(str(e)) from None
        started.append(process)
        record = replace(record, processes=(*record.processes, process.identity))
        save(ctx, record)
    return record


async def _visible(ctx: Context, spec: ShardSpec) -> str | None:
    """A MIG instance has no number that CUDA knows: it is named by its UUID, which the driver tells now."""
    if all(d < INSTANCES for d in spec.devices):
        return None
    names = await asyncio.to_thread(ctx.host.device_names, spec.devices)
    if names is None:
        shown = ", ".join(map(device_name, spec.devices))
        raise CannotStart(f"the driver does not tell the id of device {shown}: was the card cut anew?")
    return ",".join(names)


def save(ctx: Context, record: ShardFile) -> None:
    """Raises `CannotStart`: a shard that the next agent could not describe would be ended by it."""
    try:
        shardfile.write(ctx.home, record)
    except OSError as e:
        raise CannotStart(f"the shard's record could not be written to {ctx.home.shards}: {e}") from None


def new_record(ctx: Context, spec: ShardSpec, store_id: str, host: str, reboots: int = 0) -> ShardFile:
    """The record of a start that is about to happen."""
    return ShardFile(
        spec=spec,
        store_id=store_id,
        fingerprint=spec.fingerprint,
        launch=secrets.token_hex(6),
        host=host,
        log=str(log_of(ctx, spec.shard_id)),
        since=ctx.clock.wall(),
        reboots=reboots,
    )


def scratch_of(ctx: Context, shard_id: str) -> Path:
    return ctx.home.scratch / shardfile.path_of(ctx.home, shard_id).stem


def log_of(ctx: Context, shard_id: str) -> Path:
    return ctx.home.logs / f"{shardfile.path_of(ctx.home, shard_id).stem}.log"


async def _rendezvous(
    ctx: Context, meeting: Rendezvous, started: list[Process], waiting: Callable[[str | None], None]
) -> None:
    """Until somebody listens there; no longer than it may take, nor than what was started already lives."""
    where = f"{meeting.host}:{meeting.port}"
    waiting(f"it waits for {where}")
    deaths = [asyncio.create_task(p.ended()) for p in started]
    try:
        async with asyncio.timeout(meeting.timeout_s):
            while not await ctx.host.connects(meeting.host, meeting.port):
                dead = next((d for d in deaths if d.done()), None)
                if dead is not None:
                    raise Died(dead.result())
                await asyncio.sleep(_RENDEZVOUS_S)
    except TimeoutError:
        raise CannotStart(
            f"nothing listened on {where} within {meeting.timeout_s:g} s, where it was to meet the others: the first "
            "rank did not start, or its node cannot be reached at that port from here"
        ) from None
    finally:
        for task in deaths:
            task.cancel()
    waiting(None)
