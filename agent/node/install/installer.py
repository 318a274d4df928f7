"""Keeps this node's engines as the cluster's settings want them: one thing at a time, by a worker process, while
engines serve. What it tells is in `state.json`, which whoever looks for engines reads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from agent.core import installing
from agent.core.installing import Install, Installed, Look, Remove, Tried, Wait
from agent.core.options import Options
from agent.core.source import GITHUB
from agent.node.home import write_atomically
from agent.node.install import in_use
from agent.node.install.fetching import Sources
from agent.node.install.folders import Folders, open_folders
from agent.node.install.worker import INSTALL, LOOK, REMOVE, Done, Job, Lost
from agent.node.install.working import work
from agent.node.tracing import Tracing
from agent.plans import plans
from agent.plans.outcome import AUTO, Nothing, Outcome
from agent.plans.steps import Plan
from agent.wire.facts import EngineFacts, NodeFacts
from agent.wire.reason import Reason

_log = logging.getLogger("llmgw.agent")

_TELL_EVERY_S = 2.0
_BUSY_S, _FAILED_S = 15.0, 60.0


@dataclass(frozen=True, slots=True)
class Ways:
    """How this node installs, of its agent.yaml. `left_out`: engines that the operator names or keeps off the node."""

    root: Path
    left_out: frozenset[str] = frozenset()
    github: str = GITHUB
    python: str = ""
    uv: str = ""
    user: str | None = None
    packages: bool = True
    import_from: str | None = None
    retry_s: float = 1.0


@dataclass(slots=True)
class Installer:
    """`facts`: what this machine is (may take a moment); `have`: an engine that the node has without us, and that
    therefore none is installed beside; `changed`: called when there is something new to tell."""

    ways: Ways
    facts: Callable[[], NodeFacts]
    have: Callable[[NodeFacts], frozenset[str]]
    changed: Callable[[], None]
    tracing: Tracing | None = None
    _options: Options | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _tried: dict[str, Tried] = field(default_factory=dict)
    _here: dict[str, Installed] = field(default_factory=dict)
    _doing: tuple[Plan, str] | None = None
    _told: tuple[EngineFacts, ...] = ()
    _told_at: float = 0.0

    def told(self, options: Options) -> None:
        """The cluster's settings, whole and newest."""
        if options != self._options:
            self._options = options
            self._news.set()

    async def run(self) -> None:
        """Until cancelled. A step that fails is logged and comes again."""
        folders: Folders | None = None
        while True:
            try:
                if folders is None:
                    folders = await asyncio.to_thread(open_folders, self.ways.root)
                    self._tried = _read_tries(folders)
                wait_s = await self._step(folders)
            except OSError as e:
                _log.warning("engines cannot be kept in %s: %s", self.ways.root, e)
                wait_s = _BUSY_S
            except Exception:  # this loop's outermost: engines that serve must not end because one cannot be installed
                _log.exception("a step of installing engines failed; it comes again")
                wait_s = _FAILED_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            self._news.clear()

    async def _step(self, folders: Folders) -> float:
        """Seconds until there is something to do again."""
        facts = await asyncio.to_thread(self.facts)
        outcomes = self._outcomes(facts)
        await asyncio.to_thread(self._find, folders)
        now = time.time()
        args = (outcomes, tuple(self._here.values()), self._tried, now, facts.driver)
        self._here = {i.key: i for i in installing.unwanted(*args)}
        self._tell(folders, outcomes, facts.driver)
        match installing.step(outcomes, tuple(self._here.values()), self._tried, now, facts.driver):
            case Wait(until):
                return max(0.5, until - now)
            case Install(plan):
                await self._install(folders, plan, outcomes, facts.driver)
            case Look(one, plan):
                await self._look(one, plan)
            case Remove(one):
                if await asyncio.to_thread(in_use.by, folders.root / one.engine / _folder(one)):
                    # A shard runs on it: as long as it does it stays.
                    self._here[one.key] = replace(one, unwanted_since=now)
                else:
                    _log.info("engine %s is no longer wanted and is removed", one.key)
                    await self._work(REMOVE, Plan(one.engine, one.version, one.build, "", (), (), 0), None)
        return 0.0

    async def _install(self, folders: Folders, plan: Plan, outcomes: Mapping[str, Outcome], driver: str | None) -> None:
        _log.info("engine %s: its installation begins", installing.key_of(plan))

        later: asyncio.TimerHandle | None = None

        def tell() -> None:
            nonlocal later
            later = None
            self._tell(folders, outcomes, driver)

        def words(said: str) -> None:
            """Not more often than a report is worth, and the newest not later than that."""
            nonlocal later
            self._doing = (plan, said)
            if later is None:
                wait_s = max(0.0, self._told_at + _TELL_EVERY_S - time.monotonic())
                later = asyncio.get_running_loop().call_later(wait_s, tell)

        words("beginning")
        traced = self.tracing.install(plan.engine, plan.version) if self.tracing is not None else None
        try:
            result = await self._work(INSTALL, plan, words)
        finally:
            self._doing = None
            if later is not None:
                later.cancel()
        if traced is not None and self.tracing is not None:
            self.tracing.send(traced, "" if isinstance(result, Done) else result.reason.code)
        key = installing.key_of(plan)
        if isinstance(result, Done):
            _log.info("engine %s is installed as %s", key, result.path)
            self._tried.pop(key, None)
        else:
            before = self._tried.get(key)
            self._tried[key] = Tried(
                time.time(), 1 + (before.times if before else 0), _sentence(result.reason), result.passed,
                result.wait_s, driver,
            )  # fmt: skip
            _log.warning("engine %s could not be installed: %s", key, _sentence(result.reason))
        await asyncio.to_thread(_write_tries, folders, self._tried)

    async def _look(self, one: Installed, plan: Plan) -> None:
        result = await self._work(LOOK, plan, None)
        problem = _sentence(result.reason) if isinstance(result, Lost) else None
        if problem != one.problem:
            _log.warning("engine %s: %s", one.key, problem or "it works again")
        self._here[one.key] = replace(one, looked_at=time.time(), problem=problem)

    async def _work(self, do: str, plan: Plan, words: Callable[[str], None] | None) -> Done | Lost:
        """One job of the worker, to its end. Cancelled, it is killed."""
        ways, options = self.ways, self._options or Options()
        job = Job(
            do,
            str(ways.root),
            plan,
            Sources(ways.github, options.mirror, options.index, dict(options.sha256), ways.python),
            ways.user,
            ways.packages,
            ways.uv,
            ways.retry_s,
        )
        return await work(job, ways.import_from, words)

    def _outcomes(self, facts: NodeFacts) -> dict[str, Outcome]:
        """Of every engine that the control plane named. Before it has, nothing is decided."""
        if self._options is None or self._options.engines is None:
            return {}
        have = self.have(facts)
        outcomes: dict[str, Outcome] = {}
        for engine, version in self._options.engines.items():
            build = self._options.builds.get(engine, AUTO)
            # What the node has already is enough, unless somebody chose a build for it.
            without = engine in self.ways.left_out or (engine in have and build == AUTO)
            outcomes[engine] = Nothing() if without else plans(engine, facts, version, build)
        return outcomes

    def _find(self, folders: Folders) -> None:
        """What is on the disk, with what is known of it."""
        found = {}
        for path, mark in folders.installed():
            one = Installed(mark.engine, mark.version, mark.build, str(path / mark.run))
            found[one.key] = replace(self._here[one.key], path=one.path) if one.key in self._here else one
        self._here = found

    def _tell(self, folders: Folders, outcomes: Mapping[str, Outcome], driver: str | None) -> None:
        here = tuple(self._here.values())
        facts = [installing.told(e, o, here, self._tried, self._doing, driver) for e, o in outcomes.items()]
        told = tuple(f for f in facts if f is not None)
        if not outcomes or told == self._told:
            return
        _put(folders.state, msgspec.json.encode(told))
        self._told, self._told_at = told, time.monotonic()
        self.changed()


def read_state(root: Path) -> tuple[EngineFacts, ...]:
    """What an installer told last; nothing where none ever worked."""
    try:
        return msgspec.json.decode((root / "state.json").read_bytes(), type=tuple[EngineFacts, ...])
    except (OSError, msgspec.MsgspecError):
        return ()


def _put(path: Path, data: bytes) -> None:
    """Whole, but not made to last: it is told anew by the next agent, and the event loop waits for this."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(data)
    temporary.replace(path)


def _read_tries(folders: Folders) -> dict[str, Tried]:
    try:
        return msgspec.json.decode(folders.tries.read_bytes(), type=dict[str, Tried])
    except (OSError, msgspec.MsgspecError):
        return {}


def _write_tries(folders: Folders, tried: Mapping[str, Tried]) -> None:
    write_atomically(folders.tries, msgspec.json.encode(tried))


def _folder(one: Installed) -> str:
    return f"{one.version}-{one.build}" if one.build else one.version


def _sentence(reason: Reason) -> str:
    return f"{reason.sentence}: {reason.command}" if reason.command else reason.sentence
