"""RDMA adapters by sysfs, and by sminfo where that is installed. `root` is where the machine's tree begins."""

from __future__ import annotations

import shutil
from pathlib import Path

from agent.core import rdma
from agent.node import tools
from agent.wire.facts import PortFacts

_MOST_GIDS = 64
"""Looked at of a port's table; entries in use come first."""
_SMINFO_S = 2.0


def ports(root: Path = Path("/")) -> tuple[PortFacts, ...] | None:
    """None where the kernel knows nothing of RDMA; empty where it does, and there is no adapter."""
    adapters = root / "sys/class/infiniband"
    try:
        names = sorted(path.name for path in adapters.iterdir())
    except FileNotFoundError:
        return None if not (root / "sys/class").is_dir() else ()
    except OSError:
        return None
    return tuple(port for name in names for port in _ports(adapters / name, root))


def states(root: Path = Path("/")) -> tuple[bool | None, ...] | None:
    """Of each port whether it is active, and no more: asked with every heartbeat."""
    try:
        names = sorted((root / "sys/class/infiniband").iterdir())
    except OSError:
        return None
    found = (folder for name in names for folder in sorted((name / "ports").glob("[0-9]*")))
    return tuple(rdma.active(_text(folder / "state")) for folder in found)


def _ports(adapter: Path, root: Path) -> list[PortFacts]:
    device = adapter / "device"
    numa = rdma.numa_node(_text(device / "numa_node"))
    bus = device.resolve().name if device.exists() else None
    found = []
    for folder in sorted((adapter / "ports").glob("[0-9]*")):
        kind = rdma.kind(_text(folder / "link_layer"))
        live = rdma.active(_text(folder / "state"))
        gids = _table(folder / "gids")
        roce = kind == rdma.ROCE
        found.append(
            PortFacts(
                adapter=adapter.name,
                port=int(folder.name),
                kind=kind,
                active=live,
                rate_gbps=rdma.rate_gbps(_text(folder / "rate")),
                netdev=_netdev(folder, device) if roce else None,
                numa_node=numa,
                bus_id=bus,
                gid_index=rdma.routed_gid(gids, _table(folder / "gid_attrs/types")) if roce else None,
                subnet_prefix=rdma.subnet_prefix(gids.get(0, "")) if kind == rdma.INFINIBAND else None,
                subnet_manager=_master(adapter.name, folder.name, root) if kind == rdma.INFINIBAND and live else None,
                subnet_manager_lid=rdma.number(_text(folder / "sm_lid")) if kind == rdma.INFINIBAND else None,
                errors=_errors(folder / "counters"),
            )
        )
    return found


def _errors(folder: Path) -> int | None:
    counts = [rdma.number(_text(folder / name)) for name in rdma.COUNTERS]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _netdev(port: Path, device: Path) -> str | None:
    names = sorted(set(_table(port / "gid_attrs/ndevs").values()))
    if names:
        return names[0].strip()
    try:
        return min((path.name for path in (device / "net").iterdir()), default=None)
    except OSError:
        return None


def _table(folder: Path) -> dict[int, str]:
    """Unused entries cannot be read (EINVAL) or are all zeros."""
    found = {}
    for index in range(_MOST_GIDS):
        path = folder / str(index)
        if not path.exists():
            break
        text = _text(path).strip()
        if text:
            found[index] = text
    return found


def _master(adapter: str, port: str, root: Path) -> str | None:
    if root != Path("/") or shutil.which("sminfo") is None:
        return None
    return rdma.master(tools.said(["sminfo", "-C", adapter, "-P", port], _SMINFO_S) or "")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):
        return ""
