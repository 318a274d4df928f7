"""Providers' keys from their files: read whole, checked, never shown. A file is small, so that reading it again each
second costs less than missing that it was replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What one look found: the key, or in `problem` why there is none. `warning`: it should be kept better."""

    key: bytes = field(default=b"", repr=False)
    problem: str = ""
    warning: str = ""


def read_all(files: Collection[str], ours: Collection[Path]) -> dict[str, KeyFile]:
    """Blocks: for a thread. `ours`: folders whose secrets are the gateway's own, and go to no provider."""
    return {file: read(Path(file), ours) for file in files}


def read(path: Path, ours: Collection[Path] = ()) -> KeyFile:
    try:
        real = path.resolve(strict=True)
        if any(real.is_relative_to(folder) for folder in ours):
            return KeyFile(problem="it is one of llmgw's own secrets, which go to no provider")
        fd = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hold up the thread
        with os.fdopen(fd, "rb") as f:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return KeyFile(problem="it is no file")
            data = f.read(MOST_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as e:
        return KeyFile(problem=f"it cannot be read ({getattr(e, 'strerror', None) or type(e).__name__})")
    problem = _problem(data)
    if problem:
        return KeyFile(problem=problem)
    loose = found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return KeyFile(data.strip(), warning="others than its owner may read it (chmod 600)" if loose else "")


def _problem(data: bytes) -> str:
    """What is read must be fit for a header, and look like a key: no other file's text leaves the machine."""
    key = data.strip()
    if not key:
        return "it is empty"
    if len(data) > MOST_BYTES:
        return f"it is longer than {MOST_BYTES} bytes, which no key is"
    if len(key.split()) > 1:
        return "it holds more than one word, and a key is one"
    if not key.isascii() or not key.decode("ascii").isprintable():
        return "it holds signs that no key has"
    return ""
