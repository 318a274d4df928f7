"""The process that installs: one job from stdin, its words as lines of JSON on stdout, one result at the end.

    python -m agent.node.install.worker < job.json

It is low in priority, dies with the agent that started it, and may be killed at any moment: what it was making has no
finished name, what it had fetched is fetched on.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import msgspec

from agent.core.archive import BadArchive
from agent.node.install import folders as places
from agent.node.install.environment import Builder
from agent.node.install.failures import Failed
from agent.node.install.fetching import Fetching, Progress, Sources
from agent.node.install.running import Runner, program_of
from agent.node.install.unpack import unpack
from agent.plans.steps import Check, Environment, Libraries, Plan, Program, Step, Unpack
from agent.wire.reason import Reason

INSTALL, LOOK, REMOVE = "install", "look", "remove"
_PDEATHSIG = 1
_GIB = 2**30


class Job(msgspec.Struct, frozen=True):
    """`root`: the folder of all engines. `user`, `packages`: see `Runner`; `uv`: an executable to use."""

    do: str
    root: str
    plan: Plan
    sources: Sources = msgspec.field(default_factory=Sources)
    user: str | None = None
    packages: bool = False
    uv: str = ""
    retry_s: float = 1.0


class Doing(msgspec.Struct, frozen=True, tag="doing"):
    words: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    path: str


class Lost(msgspec.Struct, frozen=True, tag="failed"):
    reason: Reason
    passed: bool = False
    wait_s: float | None = None


Line = Doing | Done | Lost


def main() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    os.nice(10)
    os.umask(0o022)
    _say(carry_out(msgspec.json.decode(sys.stdin.buffer.read(), type=Job), lambda words: _say(Doing(words))))


def carry_out(job: Job, progress: Progress) -> Done | Lost:
    """One job, to its end."""
    try:
        return Done(_do(job, progress))
    except Failed as e:
        return Lost(e.reason, e.passed, e.wait_s)
    except places.Busy as e:
        return Lost(Reason("busy", str(e)))
    except OSError as e:
        return Lost(Reason("disk", f"{job.root} cannot be written to: {e}"))


def _do(job: Job, progress: Progress) -> str:
    """The installation's executable ("" where it was removed). Raises `Failed`, `Busy`, OSError."""
    found = places.open_folders(Path(job.root))
    match job.do:
        case "look":
            return _look(job, found, progress)
        case "remove":
            with places.locked(found):
                places.remove(found.final(job.plan))
            return ""
        case _:
            with places.locked(found) as lock:
                return _install(job, found, lock, progress)


def _install(job: Job, found: places.Folders, lock: int, progress: Progress) -> str:
    plan = job.plan
    found.sweep()
    final = found.final(plan)
    for path, mark in found.installed():
        if path == final:
            return str(path / mark.run)
    _room(found, plan)
    (found.downloads / plan.engine).mkdir(mode=0o700, exist_ok=True)
    making = found.making(plan)
    making.mkdir(mode=0o755, parents=True)
    making.parent.chmod(0o755)
    fetching = Fetching(found.downloads / plan.engine, job.sources, job.retry_s)
    runner = Runner(job.user, job.packages, (lock,))
    try:
        for step in plan.steps:
            _step(job, plan, step, making, fetching, runner, found, progress)
        run = program_of(making, plan.run).relative_to(making)
        progress("finishing")
        final = found.finish(making, plan, str(run), time.time())
    except BaseException:
        places.remove(making)
        raise
    shutil.rmtree(found.downloads / plan.engine, ignore_errors=True)
    shutil.rmtree(found.cache, ignore_errors=True)
    return str(final / run)


def _step(
    job: Job,
    plan: Plan,
    step: Step,
    making: Path,
    fetching: Fetching,
    runner: Runner,
    found: places.Folders,
    progress: Progress,
) -> None:
    match step:
        case Unpack(file=file, beside=beside):
            archive = fetching.fetch(file, progress)
            progress(f"unpacking {archive.name}")
            into = program_of(making, beside).parent if beside else making
            try:
                unpack(archive, into, flat=bool(beside))
            except BadArchive as e:
                raise Failed("bad_archive", f"{archive.name} is refused: {e}", passed=True) from None
        case Program():
            runner.need(step)
        case Environment():
            Builder(found, fetching, runner, job.uv).build(plan, step, making, progress)
        case Libraries(of=patterns):
            progress("looking for its libraries")
            runner.look(making, patterns)
        case Check():
            progress(
                f"checking {' '.join(step.argv[:2])}" if step.argv[1:2] != ("-c",) else "checking that it computes"
            )
            runner.check(making, step)


def _look(job: Job, found: places.Folders, progress: Progress) -> str:
    folder = found.final(job.plan)
    runner = Runner(job.user, job.packages)
    for step in job.plan.again:
        if isinstance(step, Libraries):
            runner.look(folder, step.of)
        else:
            runner.check(folder, step)
    return str(program_of(folder, job.plan.run))


def _room(found: places.Folders, plan: Plan) -> None:
    free = shutil.disk_usage(found.root).free
    if free < plan.room_bytes:
        raise Failed(
            "no_room",
            f"{plan.engine} {plan.version} needs {plan.room_bytes / _GIB:.1f} GiB free under {found.root} while it "
            f"installs, and {free / _GIB:.1f} GiB are",
            "free some space there",
        )


def _say(line: Line) -> None:
    """Nobody to hear it: whoever started us has gone, and the next one begins anew."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
