"""Readers of Linux's /proc texts. Pure: what the kernel wrote comes in, None where it does not fit."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

MARKER = "LLMGW_SHARD"
"""In the environment of every process that we start: `<home id>/<shard id>/<launch>`."""

_VECTORS = {
    "avx": "avx",
    "avx2": "avx2",
    "avx512f": "avx512f",
    "avx512_vnni": "avx512_vnni",
    "amx_tile": "amx_tile",
    "asimd": "neon",
    "neon": "neon",
    "sve": "sve",
}
_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Stat:
    """Of /proc/PID/stat: what tells one process from another that had the same number."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int
    """Clock ticks from boot to its start: wall time has no part in it."""

    @property
    def ended(self) -> bool:
        return self.state in ("Z", "X", "x")


@dataclass(frozen=True, slots=True)
class Mark:
    """What the marker says of a process: whose it is."""

    home_id: str
    shard_id: str
    launch: str


def stat(text: str) -> Stat | None:
    """The name in parentheses may itself hold parentheses, spaces and newlines: the last `)` ends it."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    try:
        return Stat(
            pid=int(head.split(" ", 1)[0]),
            state=fields[0],
            parent=int(fields[1]),
            group=int(fields[2]),
            session=int(fields[3]),
            start_ticks=int(fields[19]),
        )
    except (IndexError, ValueError):
        return None


def mark(environ: bytes) -> Mark | None:
    """The marker in /proc/PID/environ."""
    prefix = f"{MARKER}=".encode()
    for entry in environ.split(b"\0"):
        if entry.startswith(prefix):
            parts = entry[len(prefix) :].decode("utf-8", errors="replace").split("/")
            return Mark(*parts) if len(parts) == 3 and all(parts) else None
    return None


def resident_pages(statm: str) -> int | None:
    fields = statm.split()
    try:
        return int(fields[1])
    except (IndexError, ValueError):
        return None


def meminfo(text: str) -> dict[str, int]:
    """Bytes by name (`MemTotal`, `MemAvailable`, …)."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if len(fields) == 2 and fields[1] == "kB" and fields[0].isascii() and fields[0].isdigit():
            found[name.strip()] = int(fields[0]) * 1024
    return found


def cpu_model(cpuinfo: str) -> str | None:
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().lower() in ("model name", "hardware", "cpu model") and value.strip():
            return value.strip()
    return None


def vector_extensions(cpuinfo: str) -> tuple[str, ...] | None:
    """Those of the wire's list that the first CPU has; None when the text does not say."""
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().lower() in ("flags", "features"):
            return tuple(sorted({_VECTORS[f] for f in value.split() if f in _VECTORS}))
    return None


def listening_inodes(net_tcp: str, port: int) -> frozenset[int]:
    """The sockets that listen on `port`, of /proc/net/tcp or tcp6."""
    found = set()
    for line in net_tcp.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        try:
            if int(fields[1].rpartition(":")[2], 16) == port:
                found.add(int(fields[9]))
        except ValueError:
            continue
    return frozenset(found)


def listening_ports(net_tcp: str) -> frozenset[int]:
    """Every port that is listened on, of /proc/net/tcp or tcp6."""
    found = set()
    for line in net_tcp.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        with contextlib.suppress(ValueError):
            found.add(int(fields[1].rpartition(":")[2], 16))
    return frozenset(found)


def os_name(os_release: str) -> str | None:
    """`Debian GNU/Linux 12 (bookworm)` of /etc/os-release."""
    for line in os_release.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'") or None
    return None
