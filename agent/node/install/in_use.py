"""Whether a process runs from a folder: by its program, what it has mapped, and how it was started."""

from __future__ import annotations

import os
from pathlib import Path


def by(folder: Path) -> int | None:
    """The pid of one that does; None where none does."""
    inside = f"{os.path.realpath(folder)}/"
    names = {inside.encode(), f"{folder.absolute()}/".encode()}
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            if os.readlink(process / "exe").startswith(inside):
                return int(process.name)
            if any(n in (process / part).read_bytes() for part in ("cmdline", "maps") for n in names):
                return int(process.name)
        except OSError:
            continue
    return None
