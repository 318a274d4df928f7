"""The listening sockets of one machine: bound once by the supervisor, so that each survives its process.

A taken port is a sentence that names who has it (where the kernel tells) and the variable that changes it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from llmgw.cluster.errors import Conflict


@dataclass(frozen=True, slots=True)
class Wanted:
    """A TCP port to listen on; `variable` is what changes it. Port 0: any free one."""

    name: str
    host: str
    port: int
    variable: str


def bind_all(wanted: list[Wanted]) -> dict[str, socket.socket]:
    """A listening, inheritable socket for each; `Conflict` names every port that is taken."""
    bound: dict[str, socket.socket] = {}
    problems: list[str] = []
    for one in wanted:
        try:
            bound[one.name] = _listen(one.host, one.port)
        except OSError as e:
            problems.append(_taken(one, e))
    if problems:
        for sock in bound.values():
            sock.close()
        raise Conflict("port_taken", "\n".join(problems))
    return bound


def bind_unix(path: Path) -> socket.socket:
    """A listening unix socket in place of whatever was left at `path`; reachable by this user alone."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(0o600)
    sock.listen(2048)
    sock.set_inheritable(True)
    return sock


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    sock.set_inheritable(True)
    return sock


def _taken(one: Wanted, error: OSError) -> str:
    holder = _holder(one.port)
    if error.errno in (13, 98) or holder:
        why = f"is taken{holder}" if error.errno != 13 else "needs root"
        return f"port {one.port} ({one.name}) {why}; choose another with {one.variable}=…"
    return f"{one.host}:{one.port} ({one.name}) cannot be listened on: {error.strerror}; change HOST or {one.variable}"


def _holder(port: int) -> str:
    """` by NAME (pid N)`, or nothing where the process is not ours to see."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{table}") as f:
            for line in f.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") in inodes:
                    return f" by {Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid})"
    return ""
