"""What the supervisor needs of an operating system, as small protocols, so that a rehearsal can bring its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.core.holders import InUse
from agent.core.last_words import Exit
from agent.core.proc import Mark
from agent.core.readiness import Response


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for certain: its number alone may be another's tomorrow."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start, in a session of its own, with its output appended to `log`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    user: str | None = None


class LaunchFailed(Exception):
    """The process could not be started; the sentence says why."""


class Process(Protocol):
    """A process that we started or took over."""

    @property
    def identity(self) -> Identity: ...
    async def ended(self) -> Exit: ...


@dataclass(frozen=True, slots=True)
class Marked:
    """A living process that bears a marker."""

    identity: Identity
    mark: Mark


class Host(Protocol):
    def boot_id(self) -> str: ...
    def spawn(self, launch: Launch) -> Process:
        """Raises `LaunchFailed`."""
        ...

    def find(self, identity: Identity) -> Process | None:
        """The living process with exactly this identity."""
        ...

    def age_s(self, identity: Identity) -> float:
        """Since it was started, by a clock that nobody sets."""
        ...

    def marked(self, home_id: str) -> tuple[Marked, ...]:
        """Every living process that bears this home's marker."""
        ...

    def members(self, groups: Mapping[str, Iterable[Identity]]) -> dict[str, tuple[Identity, ...]]:
        """By group: the living processes of the sessions that its leaders began, and all their descendants. One
        look at the machine, however many groups there are."""
        ...

    def signal(self, identity: Identity, number: int) -> bool:
        """False when it is already gone (or no longer the same)."""
        ...

    def resident_bytes(self, processes: Iterable[Identity]) -> int | None: ...
    def listens(self, port: int, processes: Iterable[Identity]) -> bool | None:
        """Whether one of `processes` listens on the TCP port; None when that cannot be told."""
        ...

    def device_memory(self, devices: Collection[int], processes: Iterable[Identity]) -> Mapping[int, int | None] | None:
        """What `processes` hold on each of the cards, in bytes: 0 nothing, None something whose size the driver does
        not tell. None for the whole when it cannot be told. Slow."""
        ...

    def device_use(self, devices: Collection[int]) -> tuple[InUse, ...] | None:
        """What of each of the cards is not free, and who holds it. None when that cannot be told. Slow."""
        ...

    def device_names(self, devices: Collection[int]) -> tuple[str, ...] | None:
        """What CUDA calls them: a card its number, a MIG instance its UUID; None when that cannot be told. Slow."""
        ...

    def port_problem(self, host: str, port: int) -> str | None:
        """Why nobody could listen there now; None when somebody could."""
        ...

    async def get(self, host: str, port: int, path: str, key: str) -> Response | None:
        """An HTTP answer; None when there is none in time."""
        ...

    async def connects(self, host: str, port: int) -> bool | None:
        """True: somebody listens there; False: nobody does; None: it could not be told in time."""
        ...
