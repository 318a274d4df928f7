"""Who holds a card's memory where a start needs it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.wire.facts import device_name
from agent.wire.occupancy import counts, held_bytes

_NAMED = 3
"""Processes that a sentence names."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process. `name`: the kernel's, None for one of another pid namespace. `memory_bytes`: None where the driver
    tells no size."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class InUse:
    """What of a device is not free, by its own figures and by its processes."""

    device: int
    memory_bytes: int | None = None
    free_bytes: int | None = None
    holders: tuple[Holder, ...] = ()

    @property
    def bytes(self) -> int:
        return held_bytes(self.memory_bytes, self.free_bytes, (h.memory_bytes for h in self.holders))


def occupied(found: Iterable[InUse]) -> tuple[InUse, ...]:
    """Those of which more is held than a driver does by itself."""
    return tuple(one for one in found if counts(one.bytes, one.memory_bytes))


def told(found: Iterable[InUse]) -> str:
    """`process 4711 (python3) holds 60.0 GiB of GPU 0`, for each."""
    return "; ".join(map(_told, found))


def _told(one: InUse) -> str:
    device = f"GPU {device_name(one.device)}"
    if not one.holders:
        return f"{_gib(one.bytes)} of {device} are not free, and the driver names no process that holds them"
    most = sorted(one.holders, key=lambda h: (-(h.memory_bytes or 0), h.pid))
    names = [f"process {h.pid}{f' ({h.name})' if h.name else ''} holds {_size(h)}" for h in most[:_NAMED]]
    more = f" and {len(most) - _NAMED} more processes hold some" if len(most) > _NAMED else ""
    return f"{', '.join(names)}{more} of {device}"


def _size(holder: Holder) -> str:
    return "some" if holder.memory_bytes is None else _gib(holder.memory_bytes)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
