"""What this machine is: one `NodeFacts`. What cannot be told is None, never zero."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.core import proc
from agent.node import rdma, surroundings
from agent.node.nvml import Cards
from agent.node.settings import Settings
from agent.wire.facts import EngineFacts, FabricFacts, GpuFigures, NodeFacts

_SHARED = {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "fuse.glusterfs", "beegfs", "gpfs", "9p"}


_NO_CARDS = Cards()


@dataclass(frozen=True, slots=True)
class Moving:
    """What a heartbeat tells of a machine."""

    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    load_1m: float | None = None
    gpus: tuple[GpuFigures, ...] | None = None
    rdma_active: tuple[bool | None, ...] | None = None
    """Of each RDMA port: a change is told at once, since a fabric goes with it."""


class Surroundings(Protocol):
    """The machine around an agent."""

    def facts(self, address: str | None, own_ports: Collection[int]) -> NodeFacts:
        """`address`: where the node is reached; `own_ports`: those of its own engines. May take seconds."""
        ...

    def moving(self) -> Moving: ...


def facts(
    settings: Settings,
    weights: Path,
    address: str | None,
    engines: Iterable[EngineFacts],
    own_ports: Collection[int] = (),
    cards: Cards = _NO_CARDS,
    whole: tuple[str, ...] | None = None,
) -> NodeFacts:
    """Everything; takes a few milliseconds."""
    cpuinfo = _text("/proc/cpuinfo")
    memory = proc.meminfo(_text("/proc/meminfo"))
    disk = _disk(weights)
    return NodeFacts(
        hostname=socket.gethostname() or None,
        address=address,
        os=proc.os_name(_text("/etc/os-release")) or platform.system() or None,
        arch=platform.machine() or None,
        boot_id=_text("/proc/sys/kernel/random/boot_id").strip() or None,
        cpu_count=cpus(),
        cpu_model=proc.cpu_model(cpuinfo),
        vector_extensions=proc.vector_extensions(cpuinfo),
        memory_bytes=memory.get("MemTotal"),
        memory_free_bytes=memory.get("MemAvailable"),
        disk_bytes=disk[0] if disk else None,
        disk_free_bytes=disk[1] if disk else None,
        ports_taken=_ports_taken(own_ports),
        driver=cards.driver,
        agent_version=version(),
        labels=dict(settings.labels),
        gpus=cards.gpus,
        rdma_ports=rdma.ports(),
        imex=surroundings.imex_ready(),
        engines=tuple(engines),
        fabrics=tuple(FabricFacts(name, adapters) for name, adapters in settings.fabrics.items()),
        weights=whole,
    )


def moving(weights: Path, gpus: tuple[GpuFigures, ...] | None = None) -> Moving:
    disk = _disk(weights)
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    memory = proc.meminfo(_text("/proc/meminfo"))
    return Moving(memory.get("MemAvailable"), disk[1] if disk else None, load, gpus, rdma.states())


@functools.cache
def version() -> str:
    """Of the code that runs: an upgrade's is another one until the agent was started again."""
    from importlib import metadata

    try:
        return metadata.version("llmgw")
    except metadata.PackageNotFoundError:
        return "0+source"


def _ports_taken(own: Collection[int]) -> tuple[int, ...] | None:
    """Below the range that systems hand out for a while; the rest would never stand still."""
    tables = [t for t in (_text("/proc/net/tcp"), _text("/proc/net/tcp6")) if t]
    if not tables:
        return None
    found = frozenset().union(*(proc.listening_ports(t) for t in tables))
    return tuple(sorted(p for p in found if 1024 <= p < 32768 and p not in own))


def cpus() -> int | None:
    """Cores that this process may use, and its engines with it."""
    try:
        return len(os.sched_getaffinity(0))
    except OSError:
        return os.cpu_count()


def _disk(folder: Path) -> tuple[int, int] | None:
    """(size, free) of its file system; None where that is shared, and so nobody's own."""
    if _file_system(folder) in _SHARED:
        return None
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return None
    return found.total, found.free


def _file_system(folder: Path) -> str | None:
    """The type of the file system that `folder` is on, of /proc/mounts."""
    best, kind = "", None
    where = str(folder.resolve())
    for line in _text("/proc/mounts").splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if (where == point or where.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
