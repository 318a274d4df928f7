"""The two C programs, compiled into `bench/bin/` when they are older than their source."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

HERE = Path(__file__).parent
BIN = HERE / "bin"


class CannotBuild(Exception):
    """The sentence for whoever asked for the benchmark."""


def program(name: str) -> Path:
    """The binary of `engine` or `load`; raises `CannotBuild`."""
    sources = (HERE / f"{name}.c", HERE / "common.h")
    binary = BIN / name
    if binary.exists() and all(binary.stat().st_mtime >= s.stat().st_mtime for s in sources):
        return binary
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotBuild(
            f"bench/{name}.c needs a C compiler and none is on the PATH: install one (apt-get install gcc libc6-dev)"
        )
    BIN.mkdir(exist_ok=True)
    # Renamed into place, so that two who want it at once do not meet half a file.
    fresh = BIN / f".{name}.{os.getpid()}.{threading.get_ident()}"
    done = subprocess.run([compiler, "-O2", "-o", fresh, sources[0]], capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"{compiler} could not compile bench/{name}.c:\n{done.stderr.strip()}")
    return fresh.replace(binary)
